"""Equal examples, found by their 128-bit digests.

Digests are random numbers, so the first 64 bits of almost all of them differ: one sort of these
shows which examples can have an equal at all, and only those few are compared in full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.columns import Ints

DIGEST = np.dtype([("a", "<u8"), ("b", "<u8")])
Digests = npt.NDArray[np.void]
Scores = npt.NDArray[np.float64]


def digests_of(column: pa.ChunkedArray) -> Digests:
    """A column of ``fixed_size_binary(16)`` as pairs of 64-bit numbers."""
    chunks = [
        np.frombuffer(c.buffers()[1], DIGEST)[c.offset : c.offset + len(c)]
        for c in column.chunks
        if len(c)
    ]
    return np.concatenate(chunks) if chunks else np.zeros(0, DIGEST)


def _suspects(first_half: npt.NDArray[np.uint64]) -> Ints:
    """The examples whose first half another example has as well, ascending."""
    ordered = np.sort(first_half)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return np.zeros(0, np.int64)
    # The place of each value among the repeated ones; past the end, the last one stands in.
    place = np.minimum(np.searchsorted(repeated, first_half), len(repeated) - 1)
    return np.flatnonzero(repeated[place] == first_half)


def _groups(digests: Digests, score: Scores | None = None) -> tuple[Ints, Ints]:
    """The suspects sorted by digest, and for each of them the example that stands for its digest:
    the first, or that with the highest score; of equal scores the first, and NaN is the lowest."""
    halves: Any = digests  # a structured array gives its fields by name
    suspects = _suspects(np.ascontiguousarray(halves["a"]))
    a, b = halves["a"][suspects], halves["b"][suspects]
    # The last key counts first. The sort is stable, so equal examples stay in input order.
    order = np.lexsort((b, a) if score is None else (-score[suspects], b, a))
    a, b = a[order], b[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    members = suspects[order]
    return members, members[begins][np.cumsum(begins) - 1]


def repeats(digests: Digests) -> npt.NDArray[np.bool_]:
    """Which examples equal an earlier one."""
    members, firsts = _groups(digests)
    mask = np.zeros(len(digests), bool)
    mask[members] = members != firsts
    return mask


def pairs(digests: Digests, score: Scores | None = None) -> tuple[Ints, Ints]:
    """The examples that equal one that stays, and for each the one that it equals.

    Args:
        score: the one with the highest stays, of several the first; NaN is the lowest. By default
            the first stays.
    """
    members, firsts = _groups(digests, score)
    again = members != firsts
    return members[again], firsts[again]


def count_in(some: Digests, others: Digests) -> int:
    """How many of some examples equal one of the others."""
    # The others come first, so a group that has one of them begins with one.
    members, firsts = _groups(np.concatenate([others, some]))
    return int(((members >= len(others)) & (firsts < len(others))).sum())
