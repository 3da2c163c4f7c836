"""Packed rows: several examples one after another in a row; ``seq_lengths`` says where each ends.

A pack of two examples, of 3 and 2 tokens::

    input_ids    [5, 6, 7, 5, 9]
    labels       [-100, -100, 7, -100, 9]
    seq_lengths  [3, 2]
    row_ids      ["data.jsonl:1", "data.jsonl:4"]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.columns import Ints, list_parts, make_list, numbers, offsets_of, sum_per_row, whole
from stages.tokens import packing
from stages.tokens.layouts import Shape
from stages.tokens.ragged import Ragged, ordered

_PER_TOKEN = ("input_ids", "labels", "loss_weights")


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


def unpack(table: pa.Table) -> pa.Table:
    """Packs to the examples in them, in stored order."""
    stored = {name: whole(table.column(name)) for name in table.schema.names}
    rows = list_parts(stored["input_ids"])[0]
    starts = offsets_of(numbers(stored["seq_lengths"])[1])
    examples = {"row_id": list_parts(stored["row_ids"])[1]}
    if "sources" in stored:
        examples["source"] = list_parts(stored["sources"])[1]
    for name in _PER_TOKEN:
        if name in stored:
            examples[name] = make_list(starts, list_parts(stored[name])[1])
    if "step_positions" in stored:
        at, positions = numbers(stored["step_positions"])
        # Positions over all rows are ascending, and so are the starts of the examples: searchsorted
        # gives the number of positions before each start, which are the new offsets.
        places = positions.astype(np.int64) + np.repeat(rows[:-1], np.diff(at))
        split = np.searchsorted(places, starts)
        inside = places - np.repeat(starts[:-1], np.diff(split))
        examples["step_positions"] = make_list(split, pa.array(inside.astype(np.int32)))
        examples["step_labels"] = make_list(split, list_parts(stored["step_labels"])[1])
    return ordered(pa.table(examples))


class _Packed(Ragged):
    name = "packed"
    stage = "pack"
    packs = True

    def plan(self, lengths: Ints, capacity: int) -> tuple[Ints, Ints]:
        pack_of = packing.plan(lengths, capacity)
        # Sorted by pack, each pack's examples stand together; the stable sort keeps their order.
        sizes = np.bincount(pack_of) if len(pack_of) else np.zeros(0, np.int64)
        return np.argsort(pack_of, kind="stable"), sizes.astype(np.int64)

    def rows(self, examples: pa.Table, sizes: Ints, shape: Shape) -> pa.Table:
        return pack(examples, sizes)

    def examples(self, rows: pa.Table) -> pa.Table:
        return unpack(rows)

    def sizes(self, rows: pa.Table) -> Ints:
        return np.diff(numbers(whole(rows.column("seq_lengths")))[0])


LAYOUT = _Packed()
