"""What becomes of every example that was encoded: it is used, or left out for one reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.choice.sides import SplitRule

Fates: TypeAlias = npt.NDArray[np.uint8]


class Fate(IntEnum):
    """Why an example is left out: the first reason in this order. The names are the manifest's."""

    USED = 0
    FILTERED = 1
    CONTAMINATED = 2
    DUPLICATE = 3
    NEAR_DUPLICATE = 4
    OVER_BUDGET = 5


@dataclass(frozen=True, slots=True)
class Choice:
    """Which examples are used, on which side, and how often.

    Attributes:
        fate: of every example, a ``Fate``.
        duplicate: which examples equal another that stays (dropped only with ``--dedup``).
        test: which examples are of the test side; None where there is one side.
        times: how often each used example of the train side is stored; None for once.
        rule: how the sides were made; None where there is one side.
    """

    fate: Fates
    duplicate: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_] | None = None
    times: npt.NDArray[np.uint16] | None = None
    rule: SplitRule | None = None

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Which examples are used, on either side."""
        return np.equal(self.fate, Fate.USED)

    def count(self, fate: Fate) -> int:
        """How many examples have a fate."""
        return int(np.count_nonzero(self.fate == fate))
