"""Packing: which examples share a training row (a plan over lengths), and the rows themselves.

The plan is best-fit decreasing over a histogram of lengths. Examples of one length are placed in
bulk: the fullest pack that still has room takes as many of them as fit, so the work grows with
the number of distinct (length, room) pairs and not with the number of examples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.columns import Ints, list_parts, make_list, numbers, offsets_of, sum_per_row

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


def _joined(column: pa.ListArray, starts: Ints) -> pa.ListArray:
    """Lists of consecutive examples joined into lists of packs."""
    offsets, values = list_parts(column)
    return make_list(offsets[starts], values)


def pack(table: pa.Table, sizes: npt.NDArray[np.integer]) -> pa.Table:
    """Training rows from examples that stand in pack order.

    Args:
        table: ``row_id``, ``input_ids``, ``labels``, ``loss_weights`` where the build has them, and
            for PRM ``step_positions`` (from the example's start) and ``step_labels``; one chunk a
            column.
        sizes: number of examples in each pack.
    """
    starts = offsets_of(sizes)
    get = {name: columns.whole(table.column(name)) for name in table.schema.names}
    lengths = np.diff(numbers(get["input_ids"])[0])
    made = {
        "row_ids": make_list(starts, get["row_id"]),
        "input_ids": _joined(get["input_ids"], starts),
        "labels": _joined(get["labels"], starts),
        "seq_lengths": make_list(starts, pa.array(lengths.astype(np.int32))),
    }
    if "loss_weights" in get:
        made["loss_weights"] = _joined(get["loss_weights"], starts)
    if "step_positions" in get:
        at, positions = numbers(get["step_positions"])
        before = offsets_of(lengths)[:-1]  # tokens before each example, over all packs
        in_pack = before - np.repeat(offsets_of(sum_per_row(starts, lengths))[:-1], np.diff(starts))
        shifted = positions + np.repeat(in_pack, np.diff(at)).astype(np.int32)
        made["step_positions"] = make_list(at[starts], pa.array(shifted))
        made["step_labels"] = _joined(get["step_labels"], starts)
    return pa.table(made, schema=columns.schema(list(made)))
