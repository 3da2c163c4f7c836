"""The plan of a large build, window by window: what is asked of which workers, in which order."""

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pipeline.builder.preparation import Prepared, in_parallel
from pipeline.messages.progress import PLAN, Report
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.shards import choose, equal, exchange, facts, sides, window_plan
from pipeline.shards.equal import Equal, Search
from pipeline.shards.examples import Choice
from pipeline.shards.facts import Counts, Outline
from pipeline.shards.plan import WINDOW_EXAMPLES, Chosen, Window, digest_of
from pipeline.shards.sides import TEST, TRAIN
from pipeline.shards.storage import BUCKETS
from pipeline.shards.window_plan import Laid, Laying
from stages.errors import SurroundingsError, UsageError
from stages.rows.selection import AND_QUESTION
from stages.tokens import layouts

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Shared = TypeVar("_Shared")


def needs_one_memory(config: Config) -> bool:
    """Whether an option compares examples in a way that needs all of them in one memory: filters,
    budgets, files that they are compared with, groups that questions join, and which of equal
    examples stays by a column."""
    plan = config.plan
    return bool(
        plan.total is not None
        or plan.near_dedup
        or plan.decontaminate
        or Keep.of(plan.dedup_keep).column
        or any((one.options.group_by or "").endswith(AND_QUESTION) for one in config.sources)
        or any(one.budget.given or one.test or one.options.filter for one in config.sources)
    )


@dataclass(frozen=True, slots=True)
class _Workers:
    """Calls of functions over windows and buckets, by the build's engine."""

    prepared: Prepared
    report: Report

    def each(
        self, function: Callable[[_Shared, _Item], _Found], shared: _Shared, items: Sequence[_Item]
    ) -> list[_Found]:
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
def _search(prepared: Prepared, windows: Sequence[Window], folder: Path) -> Iterator[Search]:
    """With a folder of its own: several processes may plan one build at once."""
    scratch = folder / f".{uuid.uuid4().hex}"
    try:
        yield Search(
            config=prepared.config,
            folder=str(scratch),
            windows=len(windows),
            stored=tuple(prepared.recipe.task.stored),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _width(config: Config, longest: int) -> int:
    options = config.plan
    return layouts.load(options.layout).width(options.pad_to, longest, options.max_length)


def in_buckets(
    prepared: Prepared, windows: Sequence[Window], folder: Path, report: Report
) -> tuple[Outline, list[Laid]]:
    """Plan a build of which no process has all examples.

    Args:
        folder: for the files of the plan, which the makers of shards read.

    Raises:
        UsageError: the test side leaves nothing to train on.
        DataError: equal examples are on both sides, or examples that differ have one digest.
    """
    with _search(prepared, windows, folder) as search:
        config, workers = prepared.config, _Workers(prepared, report)
        longest = workers.each(equal.scatter, search, windows)
        found = sum(workers.each(equal.find, search, range(BUCKETS)), Equal())
        search.forget_digests()
        choose.require_none_apart(found.apart)
        width = _width(config, max(longest, default=0))
        laid, counted = _laid(
            workers, Laying(search, prepared.recipe.task.kind, str(folder), width), windows
        )
        counts = replace(facts.joined(counted), leaked=found.leaked, doubles=found.by_source)
        split = bool(config.grouped and config.plan.test_size and counts.kept)
        if split and not _stored(laid, TRAIN):
            raise choose.nothing_to_train_on(config.plan)
        outline = Outline(
            counts=counts,
            sides=_apart(laid),
            split=split,
            width=width,
            rule=_rule(workers, search) if split else None,
            windows=len(windows),
        )
        return outline, laid


def _laid(
    workers: _Workers, laying: Laying, windows: Sequence[Window], choice: Choice | None = None
) -> tuple[list[Laid], list[Counts]]:
    """The plans of all windows, or of the buckets that a shuffle deals them to; what is counted of
    each window."""
    options = laying.search.config.plan
    items = [(window, None if choice is None else _part_of(choice, window)) for window in windows]
    mixed = options.shuffle and len(windows) > 1
    if mixed and options.index_only:
        raise UsageError(
            "--index-only stores examples in input order, and --shuffle mixes those of a build of "
            f"more than one window ({WINDOW_EXAMPLES:,} examples) before they are packed.",
            "Leave --shuffle out: trainers shuffle packs. Or leave --index-only out.",
        )
    if not mixed:
        laid = workers.each(window_plan.lay, laying, items)
        return laid, [one.counts for one in laid]
    names = tuple(source.name for source in workers.prepared.inputs)
    dealing = exchange.Dealing(laying, windows[-1].end, names)
    dealt = workers.each(exchange.deal, dealing, items)
    buckets = exchange.buckets(dealt, digest_of(windows))
    return workers.each(exchange.lay, laying, buckets), [one.counts for one in dealt]


def _stored(laid: Sequence[Laid], side: str) -> int:
    """How many shards a side has."""
    return sum(len(one.shards.get(side, ())) for one in laid)


def _apart(laid: Sequence[Laid]) -> dict[str, int]:
    """The sides that have examples, and of each how many packings were made apart."""
    return {
        side: sum(one.apart.get(side, 0) for one in laid)
        for side in (TRAIN, TEST)
        if _stored(laid, side)
    }


def _rule(workers: _Workers, search: Search) -> sides.SplitRule:
    counted = workers.each(window_plan.count_groups, search, range(BUCKETS))
    window_plan.forget_groups(search)
    return sides.rule_of(counted, search.config.plan.test_size)


def _part_of(choice: Choice, window: Window) -> Choice:
    own = slice(window.first, window.end)
    return Choice(
        choice.fate[own],
        choice.duplicate[own],
        test=None if choice.test is None else choice.test[own],
        times=None if choice.times is None else choice.times[own],
    )


def of_chosen(
    prepared: Prepared,
    windows: Sequence[Window],
    folder: Path,
    *,
    chosen: Chosen,
    counts: Counts,
    report: Report,
) -> tuple[Outline, list[Laid]]:
    """Lay out a build whose examples were chosen in one memory.

    Args:
        counts: of what is chosen.
    """
    workers, choice = _Workers(prepared, report), chosen.choice
    longest = int(chosen.examples.length[choice.used].max(initial=0))
    width, kind = _width(prepared.config, longest), prepared.recipe.task.kind
    with _search(prepared, windows, folder) as search:
        laying = Laying(search, kind, str(folder), width, counted=True)
        laid, _ = _laid(workers, laying, windows, choice)
    outline = Outline(
        counts=counts,
        sides=_apart(laid),
        split=choice.test is not None,
        width=width,
        rule=choice.rule,
        asked=choice.asked,
        windows=len(windows),
    )
    return outline, laid
