"""The choice of a build: filters, doubles, sides and budgets, each on what those before it left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.choice import doubles, sides
from pipeline.choice.examples import PlannedExamples
from pipeline.choice.fates import Choice, Fate, Fates
from pipeline.choice.sides import SplitRule
from pipeline.options.config import PlanOptions
from stages.errors import UsageError


def _drop(fate: Fates, which: npt.NDArray[np.bool_], reason: Fate) -> None:
    """Leave examples out, those that are left out already keep their reason."""
    fate[which & (fate == Fate.USED)] = reason


def _sides(
    options: PlanOptions, examples: PlannedExamples, used: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_] | None, SplitRule | None]:
    """Which examples are in test, and how it was decided.

    Raises:
        UsageError: all of those that are used are.
    """
    if examples.group is None or not options.test_size or not used.any():
        return None, None
    test = sides.in_test(examples.group, options.test_size, options.seed)
    if test[used].all():
        raise UsageError(
            f"--test-size {options.test_size:g} leaves nothing to train on.",
            "Give a smaller one, or more data.",
        )
    return test, sides.outcome(examples.group[used], test[used], options.test_size)


def choose(options: PlanOptions, examples: PlannedExamples) -> Choice:
    """What becomes of every example; every step is off unless asked for."""
    fate = np.full(len(examples), Fate.USED, np.uint8)
    # Of equal examples the first in input order stays, whatever the order is later.
    duplicate = doubles.repeats(examples.digest)
    if options.dedup:
        _drop(fate, duplicate, Fate.DUPLICATE)
    # Only now: what is dropped is no part of a side's share.
    test, rule = _sides(options, examples, np.equal(fate, Fate.USED))
    return Choice(fate, duplicate, test=test, rule=rule)
