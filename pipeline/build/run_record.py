"""Describes a run: what ``run.json`` will say of when, where and how a build was made."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence

from pipeline.inputs.scan import Input
from pipeline.manifest.records import RunRecord
from pipeline.parts.part import PartReport
from pipeline.recipe.recipe import Recipe
from pipeline.secrets import named
from stages import native


def _peak_memory() -> int:
    """Bytes of the process, or of its largest worker."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1024 if sys.platform != "darwin" else 1  # ru_maxrss is in KiB on Linux, bytes on macOS
    return max(peak, children) * unit


def describe(
    recipe: Recipe,
    inputs: Sequence[Input],
    parts: Sequence[PartReport],
    started: float,
    workers: int,
) -> RunRecord:
    """The run, unsealed; ``drift`` and ``files_left_out`` are filled in by the caller.

    Args:
        started: seconds since the epoch.
    """
    return RunRecord(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        seconds=round(time.time() - started, 3),
        peak_memory_bytes=_peak_memory(),
        workers=workers,
        engine=recipe.config.run.engine,
        tokenizer_source=named(recipe.tokenizer_source),
        fetched=recipe.fetched,
        tokenizer_revision=recipe.model.profile.revision,
        model=named(recipe.config.parts.model),
        inputs=tuple(source.address for source in inputs),
        python=sys.version.split()[0],
        drift=None,
        oracle_compared=sum(report.compared for report in parts),
        native=native.version(),
    )
