"""The work of a phase, spread over processes by the build's engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pipeline.executors._job import Job
from pipeline.messages.session import current
from pipeline.options.config import RunOptions
from pipeline.recipe import versions
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
    folders: Sequence[Path] | None = None,
) -> list[Result]:
    """``function(shared, item)`` for all items.

    Args:
        function, shared: sent to the workers once; items: one by one.
        what: the phase, as the report calls it.
        folders: that workers read and write, and so all machines share; by default the cache.

    Returns:
        The results in the order of the items.
    """
    if not items:
        return []
    results: dict[int, Result] = {}
    count = getattr(report, "count_rows", None)
    report(what, 0, len(items))
    job = Job(
        phase=what,
        folders=tuple((run.cache,) if folders is None else folders),
        at_once=run.workers or 0,
        address=run.ray_address,
        lost=current().warn,
    )
    for index, result in _answers(job, function, shared, items, run):
        results[index] = result
        if count is not None:
            count(getattr(result, "rows", 0))
        report(what, len(results), len(items))
    return [results[index] for index in range(len(items))]


def _answers(
    job: Job,
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    run: RunOptions,
) -> Iterator[tuple[int, Result]]:
    """What the engine yields; one that takes a job is given it.

    Machines of a cluster that share a cache in a store share no folder: what needs one is done by
    processes of this machine.
    """
    apart = run.engine == "ray" and bool(run.shared and job.folders)
    engine = "local" if apart else run.engine
    pmap = catalog.load("pipeline.executors", engine, "pmap")
    if "job" in inspect.signature(pmap).parameters:
        if engine != "local":  # whose workers are this program
            job = replace(job, alike=partial(versions.require_alike, dict(versions.here())))
        pmap = partial(pmap, job=job)
    found: Iterator[tuple[int, Result]] = pmap(function, shared, items, run.processes)
    return found
