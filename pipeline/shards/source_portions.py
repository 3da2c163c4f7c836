"""What each source of a build was asked for, and what it gave."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.amounts import Sums
from pipeline.manifest.counts import Portion, SourceRecord
from pipeline.options.config import Config, Source
from pipeline.shards.examples import Asked, Choice, Fate, PlannedExamples
from pipeline.shards.sides import TEST, TRAIN
from stages.columns import Ints

Sources: TypeAlias = npt.NDArray[np.int16]
Times: TypeAlias = npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]

ALL = "data"  # what the one source of a command is called
_WHOLE = Asked("epochs", 1.0, given=1.0, short=False)


@dataclass(frozen=True, slots=True)
class Portions(Sums):
    """What could be trained on, and what is stored of it.

    Attributes:
        has, train, test: of every source, in its row: examples, tokens and trained tokens.
    """

    has: Ints
    train: Ints
    test: Ints


def _portions(examples: PlannedExamples, of: Sources, count: int, times: Times) -> Ints:
    """What is stored of each source, where examples are stored so many times."""
    numbers = (np.ones(len(examples), np.int64), examples.length, examples.trained)
    # Sums of floats are exact below 2**53.
    sums = [np.bincount(of, times * values, minlength=count) for values in numbers]
    return np.stack(sums, axis=1).astype(np.int64)


def _asked(source: Source, total: int | None) -> dict[str, float]:
    """By the keys of the recipe; of the one source of a command it is the build's total."""
    if not source.name and total is not None:
        return {"total": total}
    return {name.replace("_", "-"): value for name, value in source.budget.given.items()}


def portions(config: Config, examples: PlannedExamples, choice: Choice) -> Portions | None:
    """What the sources have, and what they give to each side; None where the one source has no
    name, and is used whole."""
    of = examples.source
    if of is None:
        if config.plan.total is None:
            return None
        of = np.zeros(len(examples), np.int16)
    counted = partial(_portions, examples, of, len(config.sources))
    test = np.zeros(len(examples), bool) if choice.test is None else choice.test
    stored = choice.used if choice.times is None else choice.times.astype(np.int64)
    # What a budget chose from: whatever it left out, and whatever it took.
    chosen_from = choice.used | (choice.fate == Fate.OVER_BUDGET)
    return Portions(
        has=counted(chosen_from & ~test),
        train=counted(stored * ~test),
        test=counted(stored * test),
    )


def records(
    config: Config, given: Portions | None, asked: Sequence[Asked], sides: Collection[str]
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
    wanted = sum(
        one.amount if one.rated else mine.trained for one, mine in zip(asked, train, strict=True)
    )
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
