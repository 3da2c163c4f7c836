"""Ragged rows: one example each, unpadded; the trainer pads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import Ints
from stages.tokens.layouts import Shape

ORDER = (
    "row_id",
    "source",
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


def ordered(table: pa.Table) -> pa.Table:
    """The columns of some examples in stored order: ours first, then those of other kinds."""
    others = [name for name in table.schema.names if name not in ORDER]
    names = [*(name for name in ORDER if name in table.schema.names), *others]
    chunks = [columns.whole(table.column(name)) for name in names]
    return pa.table(dict(zip(names, chunks, strict=True)), schema=columns.schema(names))


class Ragged:
    """One example a row. Padded rows differ from these only in their width."""

    name = "ragged"
    stage = "ragged"
    packs = False
    pads = False
    indexed = False

    def plan(self, lengths: Ints, capacity: int) -> tuple[Ints, Ints]:
        """Every example is a row of its own."""
        return np.arange(len(lengths)), np.ones(len(lengths), np.int64)

    def width(self, pad_to: str, longest: int, max_length: int) -> int:
        """Rows are as long as their examples."""
        return 0

    def room(self, pad_to: str, max_length: int) -> int:
        """Always ``max_length``."""
        return max_length

    def rows(self, examples: pa.Table, sizes: Ints, shape: Shape) -> pa.Table:
        """The examples themselves."""
        return ordered(examples)

    def examples(self, rows: pa.Table) -> pa.Table:
        """The rows themselves."""
        return rows

    def sizes(self, rows: pa.Table) -> Ints:
        """One each."""
        return np.ones(len(rows), np.int64)


LAYOUT = Ragged()
