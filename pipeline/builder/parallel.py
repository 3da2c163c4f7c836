"""The work of a phase, spread over processes by the build's engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pipeline.amounts import NOTHING
from pipeline.inputs import versions
from pipeline.job import Job
from pipeline.messages.progress import Report, Whole, follower_of
from pipeline.messages.session import current
from pipeline.options.phases import RunOptions
from stages import catalog

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    *,
    run: RunOptions,
    report: Report,
    what: str,
    folders: Sequence[Path] | None = None,
    whole: Whole | None = None,
) -> list[Result]:
    """``function(shared, item)`` for all items.

    Args:
        function, shared: sent to the workers once; items: one by one.
        what: the phase, as the report calls it.
        folders: that workers read and write, and so all machines share; by default the cache.
        whole: the phase, where more than the number of its pieces is known.

    Returns:
        The results in the order of the items.
    """
    follower = follower_of(report)
    if items or whole is not None:
        known = whole or Whole(pieces=len(items), one_round=True)
        follower.begin(what, replace(known, at_once=run.processes))
    if not items:
        return []
    results: dict[int, Result] = {}
    job = Job(
        phase=what,
        folders=tuple((run.cache,) if folders is None else folders),
        at_once=run.workers or 0,
        address=run.ray_address,
        lost=current().warn,
        partly=follower.partly,
    )
    for index, result in _answers(job, function, shared, items, run):
        results[index] = result
        follower.piece(
            index, getattr(result, "amount", NOTHING), kept=getattr(result, "kept", False)
        )
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
