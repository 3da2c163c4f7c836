"""Looks for an equal build before anything is made, proved, or even imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.build_dir.build import Build
from pipeline.build_dir.built import Built
from pipeline.inputs.scan import Input, scan
from pipeline.manifest import build_id
from pipeline.manifest.manifest import MANIFEST
from pipeline.manifest.records import RUN
from pipeline.manifest.seal import problem
from pipeline.options.config import Config
from pipeline.publish import publish
from pipeline.recipe.declared import declared_fingerprint
from pipeline.sources import local
from stages.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at the output.

    Attributes:
        target: where the build is to be, links followed.
        inputs: in the order in which they were named.
        built: the equal build; None where there is none.
    """

    target: Path
    inputs: tuple[Input, ...]
    built: Built | None


def id_of(fingerprint: str, inputs: Sequence[Input]) -> str:
    """Hash of the recipe and its inputs: equal ids, equal shards."""
    return build_id.of_recipe(fingerprint, [(one.name, one.sha256) for one in inputs])


def look(config: Config) -> Look:
    """Scan the inputs, and look whether the output is what they would give.

    Raises:
        UsageError: the output is not ours to replace, or an input does not exist.
        DataError, SurroundingsError: an input is damaged or not readable.
    """
    target = publish.check_target(config.run.output)
    inputs = tuple(scan(config))
    key = _identify(config, inputs) if config.run.data_docs is None else None
    there = up_to_date(target, key) if key else None
    if there is None:
        return Look(target, inputs, None)
    there = replace(there, folder=config.run.output)
    left_out = tuple(local.left_out(config.source.data))
    return Look(target, inputs, Built(there, fresh=False, left_out=left_out))


def _identify(config: Config, inputs: Sequence[Input]) -> str | None:
    """The id of the build to be; None where the options do not go together, which is for
    ``resolve_recipe`` to say."""
    try:
        return id_of(declared_fingerprint(config), inputs)
    except PipelineError:
        return None


def up_to_date(target: Path, key: str) -> Build | None:
    """An equal build that is already there, every byte of it; else None."""
    try:
        there = Build.open(target)
        broken = any(problem((target / name).read_bytes()) for name in (MANIFEST, RUN))
    except (PipelineError, OSError):
        return None
    same = there.manifest.build_id == key and not broken
    return there if same and not any(there.differences()) else None
