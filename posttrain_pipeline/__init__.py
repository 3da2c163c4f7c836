"""A data compiler for post-training: the command ``pipeline``, and its commands as functions.

    import posttrain_pipeline as pp

    build = pp.run("prm", model="qwen2-1.5b", data="data.jsonl")
    build.manifest.rows.used

Options have the names of the command line with ``_`` for ``-``, and build the same bytes. Errors
are those that the command prints, as exceptions under ``PipelineError``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from posttrain_pipeline.command import ShadowedError, require_ours

if TYPE_CHECKING:
    from pipeline import __version__
    from posttrain_pipeline.api import Build, Plan, open, plan, run
    from stages.errors import (
        DataError,
        GateError,
        ModelError,
        PipelineError,
        SurroundingsError,
        UsageError,
    )

DISTRIBUTION = "posttrain-pipeline"

# The module of each name; they are imported on first use, so that the commands start fast.
_HOMES = {
    "__version__": "pipeline",
    **dict.fromkeys(("Build", "Plan", "open", "plan", "run"), "posttrain_pipeline.api"),
}

__all__ = [
    "Build",
    "DataError",
    "GateError",
    "ModelError",
    "PipelineError",
    "Plan",
    "ShadowedError",
    "SurroundingsError",
    "UsageError",
    "__version__",
    "open",
    "plan",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_ours()
    return getattr(importlib.import_module(_HOMES.get(name, "stages.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
