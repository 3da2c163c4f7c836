"""What each stage of each task reads and writes, for people."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from expectations.contract import STREAM, Context
from pipeline import tasks
from pipeline.options.config import Config
from stages.rows.batches import IDENTITY
from stages.tokens import layouts
from stages.tokens.pretokenized import Accept

Row = tuple[str, str, tuple[str, ...], tuple[str, ...]]


def _unbound(task: tasks.Task) -> Any:
    """Tools without a model: stages only keep what they are made from until they run."""
    config = Config.of(task.name, data=(), model="", output=Path())
    nothing: Any = None
    context = Context(
        kind=task.kind, layout=STREAM, max_length=config.plan.max_length, model=nothing
    )
    missing = dict.fromkeys(("model", "encoder", "renderer", "segment_encoder"))
    return SimpleNamespace(config=config, context=context, family="decoder", **missing)


def stage_table() -> list[Row]:
    """(task, stage, columns read, columns written), in the order in which they run."""
    rows: list[Row] = []
    for name in tasks.names():
        task = tasks.load(name)
        rows.append((name, "normalize", ("raw rows",), task.kind.columns + IDENTITY))
        rows += [(name, s.name, s.reads, s.writes) for s in task.stages(_unbound(task))]
        if task.kind.trains_answers:  # rows that are token ids already take this way
            rows.append((name, "accept", Accept.reads, Accept.writes))
        rows += [(name, layouts.load(x).stage, task.kept, ("shards",)) for x in task.layouts]
    return rows
