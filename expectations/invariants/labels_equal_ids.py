"""Labels equal input_ids wherever they are trained."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_equal_ids",
    why="a label that is not the next token teaches the model to write something else",
    bad=lambda context: pl.col("n_labels_not_ids") > 0,
    breaks={"n_labels_not_ids": 1},
    tasks=("sft",),
)
