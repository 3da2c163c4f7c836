"""Which examples share a pack: a plan over their lengths alone.

This is best-fit decreasing: the longest examples are placed first, each into the pack with the
least room that is still enough, and a new pack is opened only where no pack has room. All examples
of one length are placed at once: the chosen packs take as many of them as fit. So the work grows
with the number of distinct (length, room) pairs and not with the number of examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stages.columns import Ints

GLOBAL_EXAMPLES = 1 << 25  # that are planned at once; more are planned bucket by bucket
PACKS_PER_BUCKET = 300  # at least; each bucket ends in one half-empty pack, 0.3 % of so many


def _best_fit_decreasing(lengths: Ints, capacity: int) -> Ints:
    """The pack of each example; packs numbered as they are opened."""
    # Longest first. The sort is stable, so examples of one length stay in input order, and the next
    # ``count`` entries of ``order`` are always the examples of the size in hand.
    order = np.argsort(-lengths, kind="stable")
    counted = np.bincount(lengths)
    sizes = np.flatnonzero(counted)
    counts = counted[sizes]
    pack_of = np.empty(len(lengths), np.int64)
    rooms: dict[int, list[int]] = {}  # packs by the tokens that still fit
    occupied = 0  # a set of rooms as bits: bit r is set while some pack has room for r tokens
    opened = at = 0
    for size, count in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True):
        left = count
        while left:
            usable = occupied >> size  # drops the packs whose room is too small
            if usable:
                # Best fit is the least room that is enough, which is the lowest set bit: x & -x
                # clears all other bits, so no search over the rooms is needed.
                room = size + (usable & -usable).bit_length() - 1
                each = room // size  # examples of this size that fit one such pack
                packs = rooms[room][: -(-left // each)]
                del rooms[room][: len(packs)]
                if not rooms[room]:
                    occupied ^= 1 << room
            else:
                room, each = capacity, capacity // size
                packs = list(range(opened, opened + -(-left // each)))
                opened += len(packs)
            placed = min(left, each * len(packs))
            pack_of[order[at : at + placed]] = np.repeat(packs, each)[:placed]
            at += placed
            left -= placed
            # All packs took ``each`` examples but the last, which may have taken fewer.
            last = placed - each * (len(packs) - 1)
            for group, taken in ((packs[:-1], each), (packs[-1:], last)):
                rest = room - taken * size
                if group and rest:
                    rooms.setdefault(rest, []).extend(group)
                    occupied |= 1 << rest
    return pack_of


def plan(lengths: Ints, capacity: int, limit: int = GLOBAL_EXAMPLES) -> Ints:
    """The pack of each example, packs numbered by their first example in input order.

    Args:
        lengths: tokens of each example, each between 1 and ``capacity``.
        capacity: tokens that fit a pack.
        limit: examples that are planned at once.
    """
    if not len(lengths):
        return np.zeros(0, np.int64)
    if len(lengths) <= limit:
        pack_of = _best_fit_decreasing(lengths, capacity)
    else:
        fitting = max(1, int(lengths.sum()) // (capacity * PACKS_PER_BUCKET))
        buckets = min(fitting, -(-len(lengths) // limit))
        # Buckets by a hash of the position (multiplication by 2**64 over the golden ratio), so that
        # each gets the same mixture of lengths even where the input is sorted by length.
        index = np.arange(len(lengths), dtype=np.uint64)
        bucket = (index * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)) % np.uint64(buckets)
        pack_of = np.empty(len(lengths), np.int64)
        opened = 0
        for number in range(buckets):
            mine = np.flatnonzero(bucket == number)
            pack_of[mine] = _best_fit_decreasing(lengths[mine], capacity) + opened
            opened = int(pack_of[mine].max(initial=opened - 1)) + 1
    # Number the packs by their first example: ``first`` holds that example of each pack (the
    # examples are assigned from the last to the first, so the first one stays), and its sorted
    # order gives the new number.
    first = np.empty(int(pack_of.max()) + 1, np.int64)
    first[pack_of[::-1]] = np.arange(len(pack_of))[::-1]
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[pack_of]


def lower_bound(lengths: npt.NDArray[np.integer[Any]], capacity: int) -> int:
    """A lower bound on the packs: all tokens over the capacity, or the examples longer than half of
    it, no two of which fit one pack; whichever is more."""
    if not len(lengths):
        return 0
    return max(-(-int(lengths.sum()) // capacity), int((2 * lengths > capacity).sum()))
