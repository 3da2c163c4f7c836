"""Which of many hashes are known: asked for every word and every byte of a text."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stages.columns import Ints

Hashes: TypeAlias = npt.NDArray[np.uint64]
SEED = np.uint64(0x9E3779B97F4A7C15)
_BITS = 22


def mixed(values: Hashes) -> Hashes:
    """Every bit of a number in every bit of its hash; sums and products wrap at 64 bits."""
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return values ^ (values >> np.uint64(29))


def rolling(numbers: Hashes, size: int) -> Hashes:
    """A number for every run of so many numbers; ``mixed`` makes hashes of them."""
    count = max(len(numbers) - size + 1, 0)
    total = np.zeros(count, np.uint64)
    for place in range(size):
        total = total * SEED + numbers[place : place + count]
    return total


class Known:
    """Known hashes: a table of bits is asked first, since almost none of a text's is among them."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = np.unique(hashes)
        self._shift = np.uint64(64 - _BITS)
        self._bits = np.zeros(1 << _BITS, bool)
        self._bits[self.hashes >> self._shift] = True

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Places of those that are known, ascending, and the number of each among the known."""
        places = np.flatnonzero(self._bits[hashes >> self._shift])
        if not len(places):
            return places, places
        number = np.minimum(np.searchsorted(self.hashes, hashes[places]), len(self.hashes) - 1)
        same = self.hashes[number] == hashes[places]
        return places[same], number[same]
