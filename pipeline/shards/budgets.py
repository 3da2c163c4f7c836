"""How much of each source is trained on: shares, amounts and passes, by a hash of content and seed.

The examples of a source stand in an order that follows from what they ask, from their tokens and
from the seed alone (rows that ask the same stand together). A source gives so many whole passes and
then the first examples of that order. So the choice does not depend on the order of rows and files,
and a larger budget has all that a smaller one has.
"""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.executors import Sums
from pipeline.manifest.counts import Portion, SourceRecord
from pipeline.options.build_options import Budget
from pipeline.options.config import Config
from pipeline.options.source import Source
from pipeline.shards import train_test
from pipeline.shards.examples import Asked, Choice, PlannedExamples
from pipeline.shards.train_test import TEST, TRAIN
from stages.columns import Bools, Ints

_SALT = 0x6275646765740000  # or the choice would follow the sides, which the same hash decides
TRAINED = "trained_tokens"


class Taken(NamedTuple):
    """Whole passes over a source, and how many of its first examples once more.

    Two of one source compare by how much is taken: the larger has all that the smaller has.
    """

    passes: int
    more: int


class _Pool:
    """The examples of one source that may be trained on."""

    def __init__(self, examples: PlannedExamples, which: Ints, seed: int) -> None:
        self._examples, self.which, self._seed = examples, which, seed
        self._sizes: dict[str, npt.NDArray[np.integer[Any]]] = {
            "rows": np.ones(len(which), np.int64),
            "tokens": examples.length[which],
            TRAINED: examples.trained[which],
        }
        self._running: dict[str, Ints] = {}

    @functools.cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """What the order is by, first of all: of each example, a hash of what it asks."""
        return keys_of(self._examples, self.which, self._seed)

    @functools.cached_property
    def order(self) -> Ints:
        """Places among the examples, in the order in which they are taken."""
        halves: Any = self._examples.digest[self.which]
        return np.lexsort((halves["b"], halves["a"], self.keys))

    def total(self, unit: str) -> int:
        """Of one pass."""
        return int(self._sizes[unit].sum(dtype=np.int64))

    def _sums(self, unit: str) -> Ints:
        """Of the first examples in order; kept, since several amounts are looked for in it."""
        if unit not in self._running:
            self._running[unit] = np.cumsum(self._sizes[unit][self.order], dtype=np.int64)
        return self._running[unit]

    def take(self, unit: str, amount: float) -> Taken:
        """As much as an amount holds, and not more."""
        total = self.total(unit)
        if not total:
            return Taken(0, 0)
        passes = int(amount // total)
        left = int(amount - passes * total)
        more = int(np.searchsorted(self._sums(unit), left, side="right")) if left else 0
        return Taken(passes, more)

    def given(self, taken: Taken, unit: str) -> int:
        """How much that is."""
        more = int(self._sums(unit)[taken.more - 1]) if taken.more else 0
        return taken.passes * self.total(unit) + more

    def times(self, taken: Taken) -> npt.NDArray[np.uint16]:
        """How often each example is stored."""
        found = np.full(len(self.which), taken.passes, np.uint16)
        if taken.more:
            found[self.order[: taken.more]] += 1
        return found

    def limit(self, budget: Budget) -> Taken:
        """The most that a source may give: passes, by default one, and an amount."""
        epochs = 1.0 if budget.epochs is None else budget.epochs
        # A product of floats may miss a whole number by its last bit: 0.29 of 100 is 29.
        limit = self.take("rows", round(epochs * self.total("rows"), 6))
        if budget.amount is not None:
            limit = min(limit, self.take(*budget.amount))
        return limit


def has_budgets(config: Config) -> bool:
    """Whether a source or the build has one."""
    return config.plan.total is not None or any(one.budget.given for one in config.sources)


def keys_of(examples: PlannedExamples, which: Ints, seed: int) -> npt.NDArray[np.uint64]:
    """A hash of what each example asks and of the seed."""
    if examples.group is None:
        raise ValueError("the parts have no groups")
    return train_test.mixed(examples.group[which], seed ^ _SALT)


def _mixture(
    pools: Sequence[_Pool], budgets: Sequence[Budget], limits: Sequence[Taken], total: int | None
) -> dict[int, int]:
    """Trained tokens of each source that has a share or a weight.

    Shares are of all that is trained on; weights divide what is left beside shares and sources that
    have neither. Without a total it is as much as the scarcest source allows. A total without
    shares and weights takes the same part of every source.
    """
    room = [pool.given(limit, TRAINED) for pool, limit in zip(pools, limits, strict=True)]
    shares = {n: b.share for n, b in enumerate(budgets) if b.share is not None}
    weights = {n: b.weight for n, b in enumerate(budgets) if b.weight is not None}
    if total is not None and not shares and not weights:
        weights = {n: float(size) for n, size in enumerate(room) if size}
    alone = sum(room[n] for n in range(len(pools)) if n not in shares and n not in weights)
    left = 1 - sum(shares.values())
    heavy = sum(weights.values())
    if total is not None:
        weighed = max(0.0, total * left - alone)
        return _wanted(shares, total) | _wanted({n: w / heavy for n, w in weights.items()}, weighed)
    # With both, what the weights divide is as large as the shares beside it allow.
    most = min((room[n] * heavy / w for n, w in weights.items()), default=0.0)
    bounds = [room[n] / share for n, share in shares.items()]
    if weights and shares:
        most = max(0.0, min(most, *(bound * left - alone for bound in bounds)))
    whole = (alone + most) / left if left > 1e-9 and (alone or most) else min(bounds, default=0.0)
    return _wanted(shares, whole) | _wanted({n: w / heavy for n, w in weights.items()}, most)


def _wanted(parts: dict[int, float], whole: float) -> dict[int, int]:
    """Rounded to whole tokens, since a product of floats may miss one by its last bit."""
    return {n: round(part * whole) for n, part in parts.items()}


class Portions(NamedTuple):
    """What the sources of a build give.

    Attributes:
        times: how often each example of the build is stored: 0 where it is left out.
        asked: of each source, what its budget came to.
    """

    times: npt.NDArray[np.uint16]
    asked: tuple[Asked, ...]


def portions(
    examples: PlannedExamples,
    train: Bools,
    test: Bools,
    budgets: Sequence[Budget],
    *,
    seed: int,
    total: int | None,
) -> Portions:
    """How often each example is stored.

    A budget counts what is trained on. The test side of a source is thinned alike, by the same
    hash, and nothing of it is stored twice.

    Args:
        train, test: which examples of the build may be on each side.
        budgets: of each source; ``total``: trained tokens that shares and weights divide.
    """
    of = examples.source
    pools = [_Pool(examples, np.flatnonzero(train & (of == n)), seed) for n in range(len(budgets))]
    limits = [pool.limit(budget) for pool, budget in zip(pools, budgets, strict=True)]
    wanted = _mixture(pools, budgets, limits, total)
    times = np.zeros(len(examples), np.uint16)
    asked = []
    for number, (pool, budget, limit) in enumerate(zip(pools, budgets, limits, strict=True)):
        taken, (unit, amount) = limit, budget.amount or ("epochs", budget.epochs or 1.0)
        if number in wanted:
            unit, amount = TRAINED, wanted[number]
            taken = min(limit, pool.take(TRAINED, amount))
        times[pool.which] = pool.times(taken)
        own_test = np.flatnonzero(test & (of == number))
        times[own_test] = _thinned(pool, taken, keys_of(examples, own_test, seed))
        given = pool.given(taken, unit) if unit != "epochs" else float(amount)
        short, rated = _short(pool, limit, unit, amount), number in wanted
        scarcest = rated and total is None and not short and taken == limit
        asked.append(Asked(unit, amount, given, short=short, rated=rated, scarcest=scarcest))
    return Portions(times, tuple(asked))


def _thinned(pool: _Pool, taken: Taken, keys: npt.NDArray[np.uint64]) -> Bools | bool:
    """Which test examples are used: those whose hash is not after the last that is trained on."""
    if taken.passes or not len(pool.which):
        return True
    return keys <= pool.keys[pool.order[taken.more - 1]] if taken.more else False


def _short(pool: _Pool, limit: Taken, unit: str, amount: float) -> bool:
    """Whether a source has less than what it was asked for."""
    return unit != "epochs" and pool.take(unit, amount) > limit


# What each source of a build was asked for, and what it gave.


Times: TypeAlias = Bools | npt.NDArray[np.integer[Any]]

ALL = "data"  # what the one source of a command is called
_WHOLE = Asked("epochs", 1.0, given=1.0, short=False)


@dataclass(frozen=True, slots=True)
class SourcePortions(Sums):
    """What could be trained on, and what is stored of it.

    Attributes:
        has, train, test: of every source, in its row: examples, tokens and trained tokens.
    """

    has: Ints
    train: Ints
    test: Ints


def _of_sources(examples: PlannedExamples, count: int, times: Times) -> Ints:
    """What is stored of each source, where examples are stored so many times."""
    numbers = (np.ones(len(examples), np.int64), examples.length, examples.trained)
    # Sums of floats are exact below 2**53.
    sums = [np.bincount(examples.source, times * values, minlength=count) for values in numbers]
    return np.stack(sums, axis=1).astype(np.int64)


def _asked(source: Source, total: int | None) -> dict[str, float]:
    """By the keys of the recipe; of the one source of a command it is the build's total."""
    if not source.name and total is not None:
        return {"total": total}
    return {name.replace("_", "-"): value for name, value in source.budget.given.items()}


def source_portions(
    config: Config, examples: PlannedExamples, choice: Choice
) -> SourcePortions | None:
    """What the sources have, and what they give to each side; None where the one source has no
    name, and is used whole."""
    if not config.named and config.plan.total is None:
        return None
    counted = partial(_of_sources, examples, len(config.sources))
    test, stored = choice.test, choice.stored_times
    return SourcePortions(
        has=counted(choice.held & ~test), train=counted(stored * ~test), test=counted(stored * test)
    )


def records(
    config: Config, given: SourcePortions | None, asked: Sequence[Asked], sides: Collection[str]
) -> tuple[SourceRecord, ...]:
    """The manifest's ``sources``; empty where the one source has no name, and is used whole.

    Args:
        asked: of each source; empty where no source has a budget.
        sides: of the build, also one that no example is on.
    """
    if given is None:
        return ()
    sources = config.sources
    has, train, test = (
        [Portion(*one) for one in every.tolist()] for every in (given.has, given.train, given.test)
    )
    trained = sum(portion.trained for portion in train)
    asked = asked or (_WHOLE,) * len(sources)
    every = zip(asked, train, strict=True)
    wanted = sum(one.amount if one.rated else mine.trained for one, mine in every)
    return tuple(
        SourceRecord(
            name=source.name or ALL,
            asked=_asked(source, config.plan.total),
            unit=one.unit,
            amount=one.amount,
            given=one.given,
            short=one.short,
            has=has[number],
            splits={TRAIN: train[number]} | ({TEST: test[number]} if TEST in sides else {}),
            share=round(train[number].trained / trained, 6) if trained else 0.0,
            wanted_share=round(one.amount / wanted, 6) if one.rated and wanted else None,
            scarcest=one.scarcest,
        )
        for number, (source, one) in enumerate(zip(sources, asked, strict=True))
    )
