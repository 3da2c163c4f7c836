"""The choice of a build: filters, doubles, sides and budgets, each on what those before it left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.choice import doubles, sides
from pipeline.choice.budgets import Portions, portions
from pipeline.choice.examples import PlannedExamples
from pipeline.choice.fates import Choice, Fate, Fates
from pipeline.options.config import Config, PlanOptions
from stages.errors import UsageError


def _drop(fate: Fates, which: npt.NDArray[np.bool_], reason: Fate) -> None:
    """Leave examples out, those that are left out already keep their reason."""
    fate[which & (fate == Fate.USED)] = reason


def _in_test(
    options: PlanOptions, examples: PlannedExamples, used: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_] | None:
    """Which examples are in test; None without a split.

    Raises:
        UsageError: all of those that are used are.
    """
    if examples.group is None or not options.test_size or not used.any():
        return None
    test = sides.in_test(examples.group, options.test_size, options.seed)
    if test[used].all():
        raise UsageError(
            f"--test-size {options.test_size:g} leaves nothing to train on.",
            "Give a smaller one, or more data.",
        )
    return test


def _portions(
    config: Config,
    examples: PlannedExamples,
    used: npt.NDArray[np.bool_],
    test: npt.NDArray[np.bool_] | None,
) -> Portions | None:
    """What the sources give, where one of them or the build has a budget."""
    budgets = [source.budget for source in config.sources]
    if config.plan.total is None and not any(budget.given for budget in budgets):
        return None
    in_test = np.zeros(len(examples), bool) if test is None else test
    train, tested = used & ~in_test, used & in_test
    seed, total = config.plan.seed, config.plan.total
    return portions(examples, train, tested, budgets, seed=seed, total=total)


def choose(config: Config, examples: PlannedExamples) -> Choice:
    """What becomes of every example; every step is off unless asked for.

    Raises:
        UsageError: nothing is left to train on.
    """
    options = config.plan
    fate = np.full(len(examples), Fate.USED, np.uint8)
    if examples.overlap is not None:
        _drop(fate, examples.overlap > options.overlap_share, Fate.CONTAMINATED)
    # Of equal examples the first in input order stays, whatever the order is later.
    duplicate = doubles.repeats(examples.digest)
    if options.dedup:
        _drop(fate, duplicate, Fate.DUPLICATE)
    # Only now: what is dropped is no part of a side's share.
    test = _in_test(options, examples, np.equal(fate, Fate.USED))
    given = _portions(config, examples, np.equal(fate, Fate.USED), test)
    if given is not None:
        _drop(fate, given.times == 0, Fate.OVER_BUDGET)
    rule = None
    if test is not None and examples.group is not None:
        used = np.equal(fate, Fate.USED)
        rule = sides.outcome(examples.group[used], test[used], options.test_size)
    times, asked = (given.times, given.asked) if given is not None else (None, ())
    return Choice(fate, duplicate, test=test, times=times, rule=rule, asked=asked)
