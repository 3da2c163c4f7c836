"""Looks for an equal build before anything is made, proved, or even imported."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.build_dir.build import Build
from pipeline.build_dir.built import Built
from pipeline.inputs.scan import Input, expand, scan, short_names
from pipeline.manifest import build_id
from pipeline.manifest.manifest import MANIFEST
from pipeline.manifest.records import RUN
from pipeline.manifest.seal import problem
from pipeline.options.config import Config
from pipeline.publish import failed, publish
from pipeline.recipe.declared import declared_fingerprint
from pipeline.sources import Located, local
from stages.errors import PipelineError
from stages.files.known_hashes import KnownHashes, identity


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
    """Look whether the output is what the inputs would give; scan them where it is not.

    Sizes and times of inputs and output are compared first, and only what changed is read. The
    hashes of the rest are those that an earlier look has kept.

    Raises:
        UsageError: the output is not ours to replace, or an input does not exist.
        DataError, SurroundingsError: an input is damaged or not readable.
    """
    target = publish.check_target(config.run.output)
    files = expand(config.source.data, config.run.cache_dir)
    if config.run.data_docs is not None:  # which an equal build does not have
        return Look(target, tuple(scan(config, files)), None)
    hashes = KnownHashes(_kept_at(config, target), trusted=not config.run.verify)
    known = [hashes.of(file.path) for file in files]
    if all(known) and (target / MANIFEST).exists():
        named = [(name, str(sha)) for name, sha in zip(short_names(files), known, strict=True)]
        there = up_to_date(target, _identify(config, named), hashes)
        if there is not None:
            hashes.save()
            return Look(target, (), _built(config, there))
    return _read(config, target, files, hashes)


def _read(config: Config, target: Path, files: Sequence[Located], hashes: KnownHashes) -> Look:
    began, before = time.time_ns(), {file.path: identity(file.path) for file in files}
    inputs = tuple(scan(config, files))
    there = None
    if (target / MANIFEST).exists():
        key = _identify(config, [(one.name, one.sha256) for one in inputs])
        there = up_to_date(target, key, hashes)
    if there is None:
        return Look(target, inputs, None)
    for one in inputs:
        if one.path in before:
            hashes.note(one.path, one.sha256, before[one.path], began)
    hashes.save()
    return Look(target, inputs, _built(config, there))


def _kept_at(config: Config, target: Path) -> Path:
    name = hashlib.sha256(os.fsencode(target)).hexdigest()
    return config.run.cache_dir / "hashes" / f"{name}.json"


def _built(config: Config, there: Build) -> Built:
    failed.clear(config.run.output)  # of a build that was refused since
    left_out = tuple(local.left_out(config.source.data))
    return Built(replace(there, folder=config.run.output), fresh=False, left_out=left_out)


def _identify(config: Config, inputs: Sequence[tuple[str, str]]) -> str | None:
    """The id of the build to be; None where the options do not go together, which is for
    ``resolve_recipe`` to say."""
    try:
        return build_id.of_recipe(declared_fingerprint(config), inputs)
    except PipelineError:
        return None


def up_to_date(target: Path, key: str | None, hashes: KnownHashes) -> Build | None:
    """The build that is there, if it has this id and every byte of it is there; else None."""
    try:
        there = Build.open(target)
        broken = any(problem((target / name).read_bytes()) for name in (MANIFEST, RUN))
        if there.manifest.build_id != key or broken:
            return None
        return None if any(there.differences(hashes.sha256)) else there
    except (PipelineError, OSError):
        return None
