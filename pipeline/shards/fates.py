"""What becomes of every example that was encoded: it is used, or left out for one reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.shards.near import NearDoubles
from pipeline.shards.sides import SplitRule
from stages.columns import Ints

Fates: TypeAlias = npt.NDArray[np.uint8]


class Fate(IntEnum):
    """Why an example is left out: the first reason in this order."""

    USED = 0
    FILTERED = 1
    CONTAMINATED = 2
    DUPLICATE = 3
    NEAR_DUPLICATE = 4
    OVER_BUDGET = 5


# Those of examples that are left out, with the names that a manifest counts them under.
LEFT_OUT = {
    Fate.FILTERED: "filtered",
    Fate.CONTAMINATED: "contaminated",
    Fate.DUPLICATE: "duplicates",
    Fate.NEAR_DUPLICATE: "near_duplicates",
    Fate.OVER_BUDGET: "left_out",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the budget of a source came to, on the train side.

    Attributes:
        unit: ``rows`` (examples), ``tokens``, ``trained_tokens`` or ``epochs``.
        amount: in that unit; ``given``: of it.
        short: the source has less than that, in as many passes as are allowed.
        rated: a share or a weight says how much, or the total of the build.
        scarcest: all that it may give is used, and nothing but the sources says how much.
    """

    unit: str
    amount: float
    given: float
    short: bool
    rated: bool = False
    scarcest: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Which examples are used, on which side, and how often.

    Attributes:
        fate: of every example, a ``Fate``.
        duplicate: which examples equal another that stays (dropped only with ``--dedup``).
        test: which examples are of the test side; None where there is one side.
        times: how often each example is stored, 0 where it is left out; None for once.
        rule: how the sides were made; None where there is one side.
        doubles: the examples in ``duplicate``, and for each the one that it equals and that stays.
        near: those that are like another; None where rows are not compared.
        asked: of each source, what its budget came to; empty where no source has a budget.
    """

    fate: Fates
    duplicate: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_] | None = None
    times: npt.NDArray[np.uint16] | None = None
    rule: SplitRule | None = None
    asked: tuple[Asked, ...] = ()
    doubles: tuple[Ints, Ints] | None = None
    near: NearDoubles | None = None

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Which examples are used, on either side."""
        return np.equal(self.fate, Fate.USED)

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """Which examples are used, or would be by another budget."""
        return self.used | np.equal(self.fate, Fate.OVER_BUDGET)

    @property
    def left_out(self) -> dict[str, int]:
        """How many examples are left out, by the names of ``LEFT_OUT``."""
        counts = np.bincount(self.fate, minlength=len(Fate)).tolist()
        return {name: counts[fate] for fate, name in LEFT_OUT.items()}

    def stored(self, values: npt.NDArray[np.integer[Any]]) -> int:
        """The sum of a number of every example over all that is stored, copies included."""
        if self.times is None:
            return int(values[self.used].sum(dtype=np.int64))
        return int((values * self.times.astype(np.int64)).sum())
