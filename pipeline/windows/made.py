"""The makers of shards: each is told where in the plan of a window its shard is."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from pipeline.shards import compared, gather, kept, workspace
from pipeline.shards.gather import ShardReport, ShardWork
from pipeline.shards.kept import Keeping
from pipeline.windows.layout import Head, ShardRef

Item: TypeAlias = ShardWork | ShardRef
_last: list[tuple[Keeping, Head, Keeping]] = []  # the window that this process works for


def _resolved(keeping: Keeping, item: Item) -> tuple[Keeping, ShardWork]:
    """The same shard by its examples, and of all parts those of its window."""
    if isinstance(item, ShardWork):
        return keeping, item
    if not _last or _last[0][0] is not keeping or _last[0][1].path != item.plan:
        head = Head.read(item.plan)
        window = head.window
        shared = replace(keeping.gather, sources=tuple(window.sources), starts=window.starts)
        parts = tuple(member.sha256 for member in window.members)
        _last[:] = [(keeping, head, replace(keeping, gather=shared, parts=parts))]
    order, sizes = _last[0][1].numbers(item)
    return _last[0][2], ShardWork(path=item.path, split=item.split, order=order, sizes=sizes)


def make(keeping: Keeping, item: Item) -> ShardReport:
    """Take a shard over, or make it: ``kept.make``."""
    return kept.make(*_resolved(keeping, item))


def leave(keeping: Keeping, item: Item) -> bool:
    """Make a shard into the workspace: ``workspace.make``."""
    return workspace.make(*_resolved(keeping, item))


def forget() -> None:
    """Let go of what this process has of the build."""
    _last.clear()
    gather.forget()
    compared.forget()
