"""The choice of a build whose options compare or rank all examples, made in one memory.

Filters, doubles, sides and budgets, each on what those before it left. It is given to the windows
of the build, which take it for what they would decide by themselves.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.options.build_options import PlanOptions
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.shards import doubles, filters, part, plan, values
from pipeline.shards.budgets import Portions, has_budgets, portions
from pipeline.shards.examples import Choice, Fate, Fates, PlannedExamples, read_examples
from stages.columns import Bools, Ints
from stages.errors import DataError, UsageError, counted
from stages.rows.groups import NO_QUESTION
from stages.rows.selection import AND_QUESTION


def _drop(fate: Fates, which: Bools, reason: Fate) -> None:
    """Leave examples out, those that are left out already keep their reason."""
    fate[which & (fate == Fate.USED)] = reason


def _doubles(examples: PlannedExamples, fate: Fates) -> Ints:
    """The examples that equal one that stays, of those that are left."""
    left = np.flatnonzero(fate == Fate.USED)
    score = None if examples.score is None else examples.score[left]
    return left[doubles.pairs(examples.digest[left], score)[0]]


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
    options: PlanOptions, examples: PlannedExamples, fate: Fates, test: Bools | None
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


def _in_test(options: PlanOptions, examples: PlannedExamples, used: Bools) -> Bools:
    """Which examples are in test.

    Raises:
        UsageError: all of those that are used are.
    """
    test = examples.in_test(options)
    if used.any() and test[used].all():
        raise nothing_to_train_on(options)
    return test


def nothing_to_train_on(options: PlanOptions) -> UsageError:
    """The error of a build whose examples are all in test."""
    return UsageError(
        f"--test-size {options.test_size:g} leaves nothing to train on.",
        "Give a smaller one, or more data.",
    )


def _of_test_files(config: Config, examples: PlannedExamples, fate: Fates) -> Bools | None:
    """Which examples are of the named test files; None where there are none. Other examples that
    ask the same are left out.

    Raises:
        UsageError: nothing is left to train on.
    """
    numbers = [number for number, source in enumerate(config.sources) if source.test]
    if not numbers or examples.group is None:
        return None
    test: Bools = np.isin(examples.source, numbers)
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
    config: Config, examples: PlannedExamples, used: Bools, test: Bools
) -> Portions | None:
    """What the sources give, where one of them or the build has a budget."""
    if not has_budgets(config):
        return None
    budgets = [source.budget for source in config.sources]
    seed, total = config.plan.seed, config.plan.total
    return portions(examples, used & ~test, used & test, budgets, seed=seed, total=total)


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
    if options.dedup:
        # Among those that are left, so that a double of one that is left out stays. By default the
        # first in input order does, whatever the order is later.
        fate[_doubles(examples, fate)] = Fate.DUPLICATE
    alike = _near(options, examples, fate, test)
    # Only now: what is dropped is no part of a side's share.
    if test is None:
        test = _in_test(options, examples, np.equal(fate, Fate.USED))
    given = _portions(config, examples, np.equal(fate, Fate.USED), test)
    if given is None:
        return Choice(fate, test=test, group=examples.group, near=alike)
    _drop(fate, given.times == 0, Fate.OVER_BUDGET)
    return Choice(fate, test, examples.group, given.times, given.asked, alike)


class Chosen(NamedTuple):
    """Every example, and what becomes of it, in one memory.

    Attributes:
        filtered: what filters left out; None without filters.
    """

    examples: PlannedExamples
    choice: Choice
    filtered: filters.Filtered | None


def needs_one_memory(config: Config) -> bool:
    """Whether an option compares examples in a way that needs all of them in one memory: filters,
    budgets, files that they are compared with, groups that questions join, and which of equal
    examples stays by a column."""
    plan = config.plan
    return bool(
        has_budgets(config)
        or plan.near_dedup
        or plan.decontaminate
        or Keep.of(plan.dedup_keep).column
        or any((one.options.group_by or "").endswith(AND_QUESTION) for one in config.sources)
        or any(one.test or one.options.filter for one in config.sources)
    )


def in_one_memory(
    config: Config, parts: Sequence[plan.Member], reports: Sequence[part.PartReport]
) -> Chosen | None:
    """What becomes of every example, where an option needs all of them; None where none does.

    Raises:
        UsageError, DataError: an option cannot be followed, or leaves nothing.
    """
    if not needs_one_memory(config):
        return None
    unread = [report.counts.get("unread_rows", {}) for report in reports]
    filtered = filters.over_parts(config, parts, unread)
    paths = [Path(one.source.path) for one in parts]
    examples = replace(
        read_examples([one.numbers for one in parts], paths, config),
        filtered=None if filtered is None else filtered.by,
        score=values.scores(config, parts),
    )
    return Chosen(examples, choose(config, examples), filtered)
