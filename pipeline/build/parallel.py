"""The work of a phase, spread over processes by the build's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pipeline.options.config import RunOptions
from stages import catalog

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


Report = Callable[[str, int, int], None]  # of progress: which phase, pieces done, of how many


def in_parallel(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    *,
    run: RunOptions,
    report: Report,
    what: str,
) -> list[Result]:
    """``function(shared, item)`` for all items.

    Args:
        function, shared: sent to the workers once; items: one by one.
        what: the phase, as the report calls it.

    Returns:
        The results in the order of the items.
    """
    if not items:
        return []
    pmap = catalog.load("pipeline.executors", run.engine, "pmap")
    results: dict[int, Result] = {}
    report(what, 0, len(items))
    for index, result in pmap(function, shared, items, run.processes):
        results[index] = result
        report(what, len(results), len(items))
    return [results[index] for index in range(len(items))]
