"""Packed rows: several examples one after another in a row; ``seq_lengths`` says where each ends.

A pack of two examples, of 3 and 2 tokens::

    input_ids    [5, 6, 7, 5, 9]
    labels       [-100, -100, 7, -100, 9]
    seq_lengths  [3, 2]
    row_ids      ["data.jsonl:1", "data.jsonl:4"]
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.columns import Ints, list_parts, make_list, numbers, offsets_of, sum_per_row, whole
from stages.tokens import layouts, ragged


def _joined(column: pa.ListArray, starts: Ints) -> pa.ListArray:
    """Lists of consecutive examples joined into lists of packs.

    Args:
        starts: the number of examples before each pack.
    """
    # The values stay as they are: only the offsets between examples of one pack are left out.
    offsets, values = list_parts(column)
    return make_list(offsets[starts], values)


def pack(table: pa.Table, sizes: npt.NDArray[np.integer]) -> pa.Table:
    """Training rows from examples in pack order.

    Args:
        table: ``row_id``, ``source`` where sources have names, ``input_ids``, ``labels``,
            ``loss_weights`` where the build has them, and for PRM ``step_positions`` (from the
            example's start) and ``step_labels``; one chunk a column.
        sizes: number of examples in each pack.
    """
    starts = offsets_of(sizes)
    columns_in = {name: whole(table.column(name)) for name in table.schema.names}
    lengths = np.diff(numbers(columns_in["input_ids"])[0])
    rows = {
        "row_ids": make_list(starts, columns_in["row_id"]),
        **({"sources": make_list(starts, columns_in["source"])} if "source" in columns_in else {}),
        "input_ids": _joined(columns_in["input_ids"], starts),
        "labels": _joined(columns_in["labels"], starts),
        "seq_lengths": make_list(starts, pa.array(lengths.astype(np.int32))),
    }
    if "loss_weights" in columns_in:
        rows["loss_weights"] = _joined(columns_in["loss_weights"], starts)
    if "step_positions" in columns_in:
        at, positions = numbers(columns_in["step_positions"])
        before = offsets_of(lengths)[:-1]  # tokens before each example, over all packs
        # Step positions count from the example's start, and in a pack from the pack's start: add
        # the tokens of the pack before each example (all tokens before it, less those before the
        # pack).
        in_pack = before - np.repeat(offsets_of(sum_per_row(starts, lengths))[:-1], np.diff(starts))
        shifted = positions + np.repeat(in_pack, np.diff(at)).astype(np.int32)
        rows["step_positions"] = make_list(at[starts], pa.array(shifted))
        rows["step_labels"] = _joined(columns_in["step_labels"], starts)
    return pa.table(rows, schema=columns.schema(list(rows)))


class _Packed(ragged.Ragged):
    name = "packed"
    stage = "pack"
    packs = True

    def plan(self, lengths: Ints, capacity: int) -> tuple[Ints, Ints]:
        pack_of = plan(lengths, capacity)
        # Sorted by pack, each pack's examples stand together; the stable sort keeps their order.
        sizes = np.bincount(pack_of) if len(pack_of) else np.zeros(0, np.int64)
        return np.argsort(pack_of, kind="stable"), sizes.astype(np.int64)

    def rows(self, examples: pa.Table, sizes: Ints, shape: layouts.Shape) -> pa.Table:
        return pack(examples, sizes)


LAYOUT = _Packed()


# Which examples share a pack: a plan over their lengths alone.
#
# This is best-fit decreasing: the longest examples are placed first, each into the pack with the
# least room that is still enough, and a new pack is opened only where no pack has room. All
# examples of one length are placed at once: the chosen packs take as many of them as fit. So the
# work grows with the number of distinct (length, room) pairs and not with the number of examples.


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
