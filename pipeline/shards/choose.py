"""The choice of a build: filters, doubles, sides and budgets, each on what those before it left."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline.options.build_options import PlanOptions
from pipeline.options.config import Config
from pipeline.shards import doubles, sides
from pipeline.shards.budgets import Portions, portions
from pipeline.shards.examples import Choice, Fate, Fates, PlannedExamples
from stages.columns import Ints
from stages.errors import DataError, UsageError, counted
from stages.rows.groups import NO_QUESTION


def _drop(fate: Fates, which: npt.NDArray[np.bool_], reason: Fate) -> None:
    """Leave examples out, those that are left out already keep their reason."""
    fate[which & (fate == Fate.USED)] = reason


def _doubles(examples: PlannedExamples, fate: Fates) -> tuple[Ints, Ints]:
    """The examples that equal another of those that are left, and the one that stays for each."""
    if not fate.any():  # none is left out: nothing has to be picked
        return doubles.pairs(examples.digest, examples.score)
    left = np.flatnonzero(fate == Fate.USED)
    score = None if examples.score is None else examples.score[left]
    again, stays = doubles.pairs(examples.digest[left], score)
    return left[again], left[stays]


def _leave_out_evaluations(options: PlanOptions, examples: PlannedExamples, fate: Fates) -> None:
    """Leave out the examples that ask what an evaluation file asks.

    Raises:
        DataError: those are all that are left.
    """
    if examples.overlap is None:
        return
    asked = examples.overlap > options.overlap_share
    if asked.any() and not ((fate == Fate.USED) & ~asked).any():
        raise DataError(
            "Nothing is left: every example overlaps with an evaluation file.",
            "Look at one with pipeline plan, and give other rows or other evaluation files.",
        )
    _drop(fate, asked, Fate.CONTAMINATED)


def _near(
    options: PlanOptions, examples: PlannedExamples, fate: Fates, test: npt.NDArray[np.bool_] | None
) -> doubles.NearDoubles | None:
    """The examples that are like another of those that are left; they are left out.

    Args:
        test: the examples of named test files, which no other row takes the place of.
    """
    if examples.signatures is None:
        return None
    used = np.equal(fate, Fate.USED)
    limit, score = options.near_dedup, examples.score
    found = doubles.alike(examples.signatures, used, limit, score, before=test)
    fate[found.dropped] = Fate.NEAR_DUPLICATE
    return found


def _joined(config: Config, examples: PlannedExamples) -> PlannedExamples:
    """The same, with rows in one group where what they ask is equal, or alike."""
    if examples.asked is not None and examples.group is not None:
        _, firsts, which = np.unique(examples.asked, return_index=True, return_inverse=True)
        own = examples.asked == NO_QUESTION
        firsts = np.where(own, np.arange(len(examples)), firsts[which])
        examples = replace(examples, group=doubles.joined(examples.group, firsts, NO_QUESTION))
    named = any(source.options.group_by for source in config.sources)
    # Who names a column says with it what belongs together.
    if examples.questions is None or examples.group is None or named:
        return examples
    firsts = doubles.clusters(examples.questions, config.plan.near_dedup)
    return replace(examples, group=doubles.joined(examples.group, firsts, NO_QUESTION))


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
        raise nothing_to_train_on(options)
    return test


def nothing_to_train_on(options: PlanOptions) -> UsageError:
    """The error of a build whose examples are all in test."""
    return UsageError(
        f"--test-size {options.test_size:g} leaves nothing to train on.",
        "Give a smaller one, or more data.",
    )


def _of_test_files(
    config: Config, examples: PlannedExamples, fate: Fates
) -> npt.NDArray[np.bool_] | None:
    """Which examples are of the named test files; None where there are none. Other examples that
    ask the same are left out.

    Raises:
        UsageError: nothing is left to train on.
    """
    numbers = [number for number, source in enumerate(config.sources) if source.test]
    if not numbers or examples.source is None or examples.group is None:
        return None
    test: npt.NDArray[np.bool_] = np.isin(examples.source, numbers)
    asked = examples.group[test]
    _drop(fate, ~test & np.isin(examples.group, asked[asked != NO_QUESTION]), Fate.CONTAMINATED)
    if not (~test & (fate == Fate.USED)).any():
        raise UsageError(
            "The files of --test leave nothing to train on: every other row has a "
            "question of theirs.",
            "Give other files.",
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


def _require_apart(equal: tuple[Ints, Ints], fate: Fates, test: npt.NDArray[np.bool_]) -> None:
    """Equal examples are on one side: a column may have put them apart, or a tokenizer may have
    made questions equal that differ as texts.

    Args:
        equal: examples that equal another, and that one for each.

    Raises:
        DataError: two are not.
    """
    again, stays = equal
    used = (fate[again] == Fate.USED) & (fate[stays] == Fate.USED)
    require_none_apart(int(np.count_nonzero(used & (test[again] != test[stays]))))


def require_none_apart(apart: int) -> None:
    """No example is on the other side of the split than one that it equals.

    Raises:
        DataError: some are.
    """
    if apart:
        raise DataError(
            f"{counted(apart, 'example')} {'is' if apart == 1 else 'are'} equal to an example in "
            "the other split.",
            "Leave equal examples out with --dedup, or group the rows by another column.",
        )


def choose(config: Config, examples: PlannedExamples) -> Choice:
    """What becomes of every example; every step is off unless asked for.

    Raises:
        UsageError: nothing is left to train on.
        DataError: evaluation files ask all that is left.
    """
    options = config.plan
    fate = np.full(len(examples), Fate.USED, np.uint8)
    examples = _joined(config, examples)
    if examples.filtered is not None:
        _drop(fate, examples.filtered > 0, Fate.FILTERED)
    _leave_out_evaluations(options, examples, fate)
    test = _of_test_files(config, examples, fate)
    # Among those that are left, so that a double of one that is left out stays. By default the
    # first in input order does, whatever the order is later.
    equal = _doubles(examples, fate)
    duplicate = np.zeros(len(examples), bool)
    duplicate[equal[0]] = True
    if options.dedup:
        _drop(fate, duplicate, Fate.DUPLICATE)
    alike = _near(options, examples, fate, test)
    # Only now: what is dropped is no part of a side's share.
    if test is None:
        test = _in_test(options, examples, np.equal(fate, Fate.USED))
    if test is not None:
        _require_apart(equal, fate, test)
    given = _portions(config, examples, np.equal(fate, Fate.USED), test)
    if given is not None:
        _drop(fate, given.times == 0, Fate.OVER_BUDGET)
    rule = None
    if test is not None and examples.group is not None:
        used = np.equal(fate, Fate.USED)
        if config.plan.test:  # rows that ask nothing may be in both
            used &= examples.group != NO_QUESTION
        rule = sides.outcome(examples.group[used], test[used], options.test_size)
    times, asked = (given.times, given.asked) if given is not None else (None, ())
    return Choice(
        fate, duplicate, test=test, times=times, rule=rule, asked=asked, doubles=equal, near=alike
    )
