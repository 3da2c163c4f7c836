"""Ragged rows: one example each, unpadded; the trainer pads."""

from __future__ import annotations

import pyarrow as pa

from stages import columns

ORDER = (
    "row_id",
    "input_ids",
    "labels",
    "loss_weights",
    "chosen_ids",
    "rejected_ids",
    "prompt_length",
    "margin",
    "step_positions",
    "step_labels",
)


def ragged(table: pa.Table) -> pa.Table:
    """The stored columns of some examples, in their declared order and types."""
    names = [name for name in ORDER if name in table.schema.names]
    chunks = [columns.whole(table.column(name)) for name in names]
    return pa.table(dict(zip(names, chunks, strict=True)), schema=columns.schema(names))
