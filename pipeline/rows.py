"""Training rows back to single examples, whatever layout they are stored in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import Ints, list_parts, make_list, numbers, offsets_of, whole
from stages.errors import UsageError
from stages.ragged import ragged

_PER_TOKEN = ("input_ids", "labels", "loss_weights")
_PADDED = {"chosen_ids": "chosen_attention_mask", "rejected_ids": "rejected_attention_mask"}


def _positions(column: pa.ListArray, rows: Ints) -> tuple[Ints, Ints]:
    """Absolute places (over all stored tokens) of step positions, and where each row's begin."""
    at, positions = numbers(column)
    return positions.astype(np.int64) + np.repeat(rows[:-1], np.diff(at)), at


def unpack(table: pa.Table) -> pa.Table:
    """Packs to the examples in them, in stored order."""
    get = {name: whole(table.column(name)) for name in table.schema.names}
    rows = list_parts(get["input_ids"])[0]
    starts = offsets_of(numbers(get["seq_lengths"])[1])
    made = {"row_id": list_parts(get["row_ids"])[1]}
    for name in _PER_TOKEN:
        if name in get:
            made[name] = make_list(starts, list_parts(get[name])[1])
    if "step_positions" in get:
        places, _ = _positions(get["step_positions"], rows)
        split = np.searchsorted(places, starts)
        inside = places - np.repeat(starts[:-1], np.diff(split))
        made["step_positions"] = make_list(split, pa.array(inside.astype(np.int32)))
        made["step_labels"] = make_list(split, list_parts(get["step_labels"])[1])
    return ragged(pa.table(made))


def _stripped(column: pa.ListArray, mask: pa.ListArray) -> pa.ListArray:
    offsets, values = list_parts(column)
    real = list_parts(mask)[1].to_numpy() != 0
    row = np.repeat(np.arange(len(column)), np.diff(offsets))
    lengths = np.bincount(row[real], minlength=len(column))
    return make_list(offsets_of(lengths), values.filter(pa.array(real)))


def unpad(table: pa.Table) -> pa.Table:
    """Padded rows without their padding."""
    get = {name: whole(table.column(name)) for name in table.schema.names}
    beside = ("attention_mask", "token_type_ids")  # made when rows are padded
    made = {name: column for name, column in get.items() if not name.endswith(beside)}
    for name in (*_PER_TOKEN, *_PADDED):
        if name in get:
            made[name] = _stripped(get[name], get[_PADDED.get(name, "attention_mask")])
    if "step_positions" in get:
        offsets, mask = list_parts(get["attention_mask"])
        before = offsets_of(mask.to_numpy() == 0)  # padding before each token, over all rows
        places, at = _positions(get["step_positions"], offsets)
        gone = before[places] - np.repeat(before[offsets[:-1]], np.diff(at))
        moved = numbers(get["step_positions"])[1] - gone
        made["step_positions"] = make_list(at, pa.array(moved.astype(np.int32)))
    return ragged(pa.table(made))


def examples(table: pa.Table, layout: str) -> pa.Table:
    """One example a row, unpadded.

    Raises:
        UsageError: it has columns that this does not know how to take apart.
    """
    known = {*columns.TYPES, "row_ids"}
    unknown = [name for name in table.schema.names if name not in known]
    if unknown:
        raise UsageError(f"Columns {', '.join(unknown)} cannot be carried into another layout.")
    if layout == "packed":
        return unpack(table)
    return unpad(table) if layout == "padded" else table
