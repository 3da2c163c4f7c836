"""Which examples share a pack: a plan over their lengths alone.

It is best-fit decreasing over a histogram of lengths. Examples of one length are placed in
bulk: the fullest pack that still has room takes as many of them as fit, so the work grows with
the number of distinct (length, room) pairs and not with the number of examples.
"""

from __future__ import annotations

import numpy as np

from stages.columns import Ints

GLOBAL_EXAMPLES = 1 << 25  # planned at once; beyond, by bucket
PACKS_PER_BUCKET = 300  # a bucket of so many packs loses at most about 0.3 % of fill


def _best_fit_decreasing(lengths: Ints, capacity: int) -> Ints:
    """The pack of each example; packs numbered as they are opened."""
    order = np.argsort(-lengths, kind="stable")
    sizes, counts = np.unique(lengths, return_counts=True)
    pack_of = np.empty(len(lengths), np.int64)
    rooms: dict[int, list[int]] = {}  # packs by the room they have left
    occupied = 0  # bit r is set while some pack has room r
    opened = at = 0
    for size, count in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True):
        left = count
        while left:
            usable = occupied >> size
            if usable:
                # The lowest set bit is the least room that is enough.
                room = size + (usable & -usable).bit_length() - 1
                each = room // size
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
            last = placed - each * (len(packs) - 1)  # what the last pack took
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
        index = np.arange(len(lengths), dtype=np.uint64)
        bucket = (index * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)) % np.uint64(buckets)
        pack_of = np.empty(len(lengths), np.int64)
        opened = 0
        for number in range(buckets):
            mine = np.flatnonzero(bucket == number)
            pack_of[mine] = _best_fit_decreasing(lengths[mine], capacity) + opened
            opened = int(pack_of[mine].max(initial=opened - 1)) + 1
    _, first, inverse = np.unique(pack_of, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


def lower_bound(lengths: Ints, capacity: int) -> int:
    """No packing needs fewer packs: by volume, and by the examples of which no two fit together."""
    if not len(lengths):
        return 0
    return max(-(-int(lengths.sum()) // capacity), int((2 * lengths > capacity).sum()))
