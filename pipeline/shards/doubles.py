"""Equal examples, found by their 128-bit digests, and near-equal ones, by signatures.

Digests are random numbers, so the first 64 bits of almost all of them differ: one sort of these
shows which examples can have an equal at all, and only those few are compared in full.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.columns import Bools, Ints, begins_of, offsets_of
from stages.normalize.overlap_words import SEED, Hashes, mixed
from stages.normalize.signatures import NUMBERS, Signatures, empty

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
    begins = begins_of(a, b)
    members = suspects[order]
    return members, members[begins][np.cumsum(begins) - 1]


def repeats(digests: Digests) -> Bools:
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


# Rows that are nearly alike: found by their signatures, and gathered into clusters.
#
# Signatures are cut into bands. Two rows that are as alike as the limit have an equal band almost
# certainly (``CERTAINTY``); rows with an equal band are compared by their whole signatures. A
# cluster is what hangs together by pairs that are alike enough. Memory is bounded: signatures stay
# in the mapped parts, and beside a block of them there are some 32 bytes for each row.


CERTAINTY = 0.999  # that two rows which are just alike enough share a band
_BLOCK = 1 << 14  # pairs that are compared at once


class NearDoubles(NamedTuple):
    """Examples that are left out because another that stays is like them.

    Attributes:
        dropped: their numbers, ascending; ``kept``: of the one that stays, for each.
        likeness: of the two, as their signatures estimate it; where a chain of others lies
            between them, it may be below the limit.
    """

    dropped: Ints
    kept: Ints
    likeness: npt.NDArray[np.float64]

    @property
    def clusters(self) -> int:
        """How many examples stay for others."""
        return len(np.unique(self.kept))


def bands(limit: float) -> tuple[int, int]:
    """How many bands, and how many numbers in each: the longest that are certain enough."""
    for size in range(NUMBERS, 1, -1):
        count = NUMBERS // size
        if 1 - (1 - limit**size) ** count >= CERTAINTY:
            return count, size
    return NUMBERS, 1


class _Rows:
    """The signatures of all parts, as one list of rows."""

    def __init__(self, parts: Sequence[Signatures]) -> None:
        self._parts = parts
        self._starts = offsets_of(np.array([len(part) for part in parts], np.int64))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def each(self, made: Callable[[Signatures], Hashes]) -> Hashes:
        """What is made of every row, block by block."""
        blocks = (p[at : at + _BLOCK] for p in self._parts for at in range(0, len(p), _BLOCK))
        return np.concatenate([np.zeros(0, np.uint64), *map(made, blocks)])

    def take(self, rows: Ints) -> Signatures:
        """Some rows, in any order."""
        found = np.empty((len(rows), NUMBERS), np.uint32)
        part_of = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(part_of).tolist():
            own = part_of == part
            found[own] = self._parts[part][rows[own] - self._starts[part]]
        return found

    def likeness(self, some: Ints, others: Ints) -> npt.NDArray[np.float64]:
        """How alike pairs are."""
        found = np.empty(len(some))
        for first in range(0, len(some), _BLOCK):
            block = slice(first, first + _BLOCK)
            found[block] = (self.take(some[block]) == self.take(others[block])).mean(axis=1)
        return found


def _hashed(signatures: Signatures) -> Hashes:
    """A hash of each row."""
    total = np.zeros(len(signatures), np.uint64)
    for column in signatures.T:
        total = total * SEED + column
    return mixed(total)


def _hashed_band(band: slice, signatures: Signatures) -> Hashes:
    """A hash of some numbers of each row."""
    return _hashed(signatures[:, band])


def _linked(firsts: Ints, some: Ints, others: Ints) -> Ints:
    """The first member of each cluster, after some pairs were put into one.

    Args:
        firsts: of each row, the first row of its cluster.
    """
    while True:
        one, other = firsts[some], firsts[others]
        apart = one != other
        if not apart.any():
            return firsts
        low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
        np.minimum.at(firsts, high, low)
        while not np.array_equal(again := firsts[firsts], firsts):
            firsts = again


def _of_equal(rows: _Rows, among: Ints, keys: Hashes, firsts: Ints, limit: float) -> Ints:
    """The clusters, after all rows with equal keys were compared, but those of one cluster.

    Each time, the first row of every set with one key is compared with the others and leaves it,
    and the rows of its cluster go behind the others; a set that is one cluster is done.
    """
    order = np.argsort(keys, kind="stable")
    keys, members = keys[order], among[order]
    while len(members):
        begins = begins_of(keys)
        which, starts = np.cumsum(begins) - 1, np.flatnonzero(begins)
        head = members[starts][which]
        apart = np.flatnonzero(firsts[head] != firsts[members])
        near = apart[rows.likeness(head[apart], members[apart]) >= limit]
        firsts = _linked(firsts, head[near], members[near])
        cluster = firsts[members]
        several = np.maximum.reduceat(cluster, starts) != np.minimum.reduceat(cluster, starts)
        order = np.argsort(2 * which + (cluster == firsts[head]), kind="stable")
        left = order[(several[which] & ~begins)[order]]
        keys, members = keys[left], members[left]
    return firsts


def clusters(parts: Sequence[Signatures], limit: float) -> Ints:
    """The first member of each row's cluster: itself where nothing before it is like it.

    Args:
        parts: signatures of every row, part by part; ``limit``: of the likeness of a pair.
    """
    rows = _Rows(parts)
    firsts = np.arange(len(rows))
    said = np.flatnonzero(rows.each(lambda part: (~empty(part)).astype(np.uint64)))
    firsts = _of_equal(rows, said, rows.each(_hashed)[said], firsts, limit)
    said = said[firsts[said] == said]  # equal rows are in its cluster already
    count, size = bands(limit)
    for band in range(count):
        keys = rows.each(partial(_hashed_band, slice(band * size, (band + 1) * size)))
        firsts = _of_equal(rows, said, keys[said], firsts, limit)
    return firsts


def alike(
    parts: Sequence[Signatures],
    used: Bools,
    limit: float,
    score: npt.NDArray[np.float64] | None = None,
    before: Bools | None = None,
) -> NearDoubles:
    """Of the examples that are used, those that are in a cluster with another that stays.

    Args:
        score: the one with the highest stays, of several the first; NaN is the lowest. By default
            the first in input order stays.
        before: examples that stay before all others, whatever their score.
    """
    candidates = np.flatnonzero(used)
    cluster = clusters(parts, limit)[candidates]
    # The last key counts first, and the sort is stable.
    by_score = () if score is None else (-score[candidates],)
    by_side = () if before is None else (~before[candidates],)
    order = np.lexsort((*by_score, *by_side, cluster))
    begins = begins_of(cluster[order])
    stays = np.empty(len(order), np.int64)
    stays[order] = candidates[order][begins][np.cumsum(begins) - 1]
    again = stays != candidates
    dropped, kept = candidates[again], stays[again]
    return NearDoubles(dropped, kept, _Rows(parts).likeness(dropped, kept))


def joined(groups: Hashes, firsts: Ints, alone: int) -> Hashes:
    """The groups of rows, after those of a cluster were made one: the least of their numbers.

    Rows of one group stay together, so clusters that share a group become one, too.

    Args:
        firsts: of each row, the first of its cluster; ``alone``: a group that stays as it is.
    """
    rows = np.flatnonzero(groups != np.uint64(alone))
    values, group = np.unique(groups[rows], return_inverse=True)
    _, first, cluster = np.unique(firsts[rows], return_index=True, return_inverse=True)
    lowest = _linked(np.arange(len(values)), group, group[first][cluster])
    found = groups.copy()
    found[rows] = values[lowest[group]]
    return found
