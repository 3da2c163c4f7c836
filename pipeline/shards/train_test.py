"""Which side of a split each example is on: train or test.

A hash of an example's group (``stages.rows.groups``) and of the seed decides, and nothing else:
no row that is added, removed or moved changes the side of another, a larger share keeps what a
smaller one had in test, and a group is never on both sides. So the share is met as a coin meets
it, within a deviation that follows from the groups' sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Counted(NamedTuple):
    """Some groups, with all examples of each.

    Attributes:
        largest: examples of the largest; ``squares``: the sum of the squares of all sizes.
    """

    groups: int
    groups_in_test: int
    examples: int
    in_test: int
    largest: int
    squares: int


def counted(groups: Groups, examples: npt.NDArray[Any], test: npt.NDArray[Any]) -> Counted:
    """Count groups.

    Args:
        groups: of some examples; ``examples``: how many have it; ``test``: whether these are in
            test.

    Raises:
        PipelineError: a group is on both sides.
    """
    every, of = np.unique(groups, return_inverse=True)
    sizes = np.bincount(of, examples, len(every)).astype(np.int64)
    tested = np.bincount(of, examples * test, len(every)).astype(np.int64)
    if ((tested > 0) & (tested < sizes)).any():
        raise PipelineError("Rows that ask the same are in train and in test.")
    return Counted(
        groups=len(every),
        groups_in_test=int(np.count_nonzero(tested)),
        examples=int(sizes.sum()),
        in_test=int(tested.sum()),
        largest=int(sizes.max(initial=0)),
        squares=int((sizes**2).sum()),
    )


def rule_of(counts: Sequence[Counted], share: float) -> SplitRule:
    """What came of a split; ``share``: asked for."""
    total = sum(one.examples for one in counts)
    if not total:
        return SplitRule(0, 0, largest=0.0, share=0.0, deviation=0.0)
    squares = sum(one.squares for one in counts) / total**2
    return SplitRule(
        groups=sum(one.groups for one in counts),
        groups_in_test=sum(one.groups_in_test for one in counts),
        largest=round(max(one.largest for one in counts) / total, 6),
        share=round(sum(one.in_test for one in counts) / total, 6),
        deviation=round(float(np.sqrt(share * (1 - share) * squares)), 6),
    )
