"""The plan of a build, window by window: what is asked of which workers, in which order."""

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pipeline.builder.preparation import Prepared, in_parallel
from pipeline.executors import Item, Result, Shared
from pipeline.messages.progress import PLAN, Report
from pipeline.shards import choose, equal, exchange, facts, train_test, window_plan
from pipeline.shards.plan import WINDOW_EXAMPLES, Window, digest_of
from stages.errors import SurroundingsError, UsageError
from stages.tokens import layouts


class _Workers(NamedTuple):
    """Calls of functions over windows and buckets, by the build's engine."""

    prepared: Prepared
    report: Report

    def each(
        self, function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item]
    ) -> list[Result]:
        run = self.prepared.config.run
        try:
            if len(items) == 1:  # a small build, in which there is nothing to follow
                return [function(shared, items[0])]
            return in_parallel(function, shared, items, run=run, report=self.report, what=PLAN)
        except OSError as error:
            raise SurroundingsError(
                f"The plan cannot be kept in {run.cache}: {error}.",
                "Make room on the disk, or name another folder with --cache-dir.",
            ) from error


@contextmanager
def _search(prepared: Prepared, windows: Sequence[Window], folder: Path) -> Iterator[equal.Search]:
    """With a folder of its own: several processes may plan one build at once."""
    scratch = folder / f".{uuid.uuid4().hex}"
    try:
        yield equal.Search(
            config=prepared.config,
            folder=str(scratch),
            windows=len(windows),
            examples=windows[-1].end if windows else 0,
            stored=tuple(prepared.recipe.task.stored),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def plan(
    prepared: Prepared,
    windows: Sequence[Window],
    folder: Path,
    report: Report,
    chosen: choose.Chosen | None = None,
) -> tuple[facts.Outline, list[window_plan.Laid]]:
    """Plan a build by its windows; no process needs all examples for it.

    Args:
        folder: for the files of the plan, which the makers of shards read.
        chosen: what becomes of every example, where that was decided in one memory.

    Raises:
        UsageError: the test side leaves nothing to train on.
        DataError: equal examples are on both sides, or examples that differ have one digest.
    """
    with _search(prepared, windows, folder) as search:
        options, workers = prepared.config.plan, _Workers(prepared, report)
        items = [(one, chosen.choice.of(one.first, one.end) if chosen else None) for one in windows]
        longest = max(workers.each(equal.scatter, search, items), default=0)
        found = workers.each(equal.find, search, range(search.buckets))
        search.forget("digests")
        choose.require_none_apart(sum(one.apart for one in found))
        width = layouts.load(options.layout).width(options.pad_to, longest, options.max_length)
        names = tuple(source.name for source in prepared.inputs)
        laid, counted = _laid(workers, window_plan.Laying(search, str(folder), width, names), items)
        counts = facts.joined([*counted, *found])
        if chosen is not None:  # its bound is that of one packing of everything
            bound = facts.lower_bound(chosen.examples, chosen.choice, options.max_length)
            counts = replace(counts, lower_bound=bound)
        split = bool(counts.kept and (options.test_size or options.test))
        if split and chosen is None and not _stored(laid, train_test.TRAIN):
            raise choose.nothing_to_train_on(options)
        groups = workers.each(equal.count_groups, search, range(search.buckets)) if split else []
        outline = facts.Outline(
            counts=counts,
            sides=_apart(laid),
            split=split,
            width=width,
            rule=train_test.rule_of(groups, options.test_size) if split else None,
            asked=chosen.choice.asked if chosen else (),
            windows=len(windows),
        )
        return outline, laid


def _laid(
    workers: _Workers, laying: window_plan.Laying, items: Sequence[equal.Item]
) -> tuple[list[window_plan.Laid], list[facts.Counts]]:
    """The plans of all windows, or of the buckets that a shuffle deals them to; what is counted of
    each window."""
    options = laying.search.config.plan
    if not options.shuffle or len(items) == 1:
        laid = workers.each(window_plan.lay, laying, items)
        return laid, [one.counts for one in laid]
    if options.index_only:
        raise UsageError(
            "--index-only stores examples in input order, and --shuffle mixes those of a build of "
            f"more than one window ({WINDOW_EXAMPLES:,} examples) before they are packed.",
            "Leave --shuffle out: trainers shuffle packs. Or leave --index-only out.",
        )
    dealt = workers.each(exchange.deal, laying, items)
    buckets = exchange.buckets(dealt, digest_of([window for window, _ in items]))
    return workers.each(exchange.lay, laying, buckets), [one.counts for one in dealt]


def _stored(laid: Sequence[window_plan.Laid], side: str) -> int:
    """How many shards a side has."""
    return sum(len(one.shards.get(side, ())) for one in laid)


def _apart(laid: Sequence[window_plan.Laid]) -> dict[str, int]:
    """The sides that have examples, and of each how many packings were made apart."""
    return {
        side: sum(one.apart.get(side, 0) for one in laid)
        for side in (train_test.TRAIN, train_test.TEST)
        if _stored(laid, side)
    }
