"""Which side of a split each example is on: train or test.

A hash of an example's group (``stages.rows.groups``) and of the seed decides, and nothing else: no
row that is added, removed or moved changes the side of another, a larger share keeps what a smaller
one had in test, and a group is never on both sides. So the share is met as a coin meets it, within
a deviation that follows from the groups' sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stages.errors import PipelineError

Groups = npt.NDArray[np.uint64]
TRAIN, TEST = "train", "test"


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How a build's sides were made, and what came of it.

    Attributes:
        groups: different ones; ``largest``: the share of the examples that are in the largest.
        share: of the examples that are in test; ``deviation``: its standard deviation over seeds.
    """

    groups: int
    groups_in_test: int
    largest: float
    share: float
    deviation: float


def mixed(values: npt.NDArray[np.integer], seed: int) -> npt.NDArray[np.uint64]:
    """SplitMix64 of each number: an order that looks random and depends on the seed alone."""
    # Sums and products wrap at 64 bits: the constants are those of the published generator.
    found = values.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 1) % 2**64)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def in_test(groups: Groups, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which examples are in test.

    Args:
        share: of the groups, at least 0 and below 1.
    """
    chosen: npt.NDArray[np.bool_] = mixed(groups, seed) < np.uint64(int(share * 2**64))
    return chosen


def outcome(groups: Groups, test: npt.NDArray[np.bool_], share: float) -> SplitRule:
    """What came of a split.

    Args:
        groups: of the examples that are split; ``test``: those in test; ``share``: asked for.

    Raises:
        PipelineError: a group is on both sides.
    """
    if not len(groups):
        return SplitRule(0, 0, largest=0.0, share=0.0, deviation=0.0)
    (tested, test_sizes), (trained, train_sizes) = (
        np.unique(groups[side], return_counts=True) for side in (test, ~test)
    )
    if len(np.intersect1d(tested, trained, assume_unique=True)):
        raise PipelineError("Rows that ask the same are in train and in test.")
    weights = np.concatenate([test_sizes, train_sizes]) / len(groups)
    return SplitRule(
        groups=len(weights),
        groups_in_test=len(tested),
        largest=round(float(weights.max()), 6),
        share=round(float(test.mean()), 6),
        deviation=round(float(np.sqrt(share * (1 - share) * (weights**2).sum())), 6),
    )
