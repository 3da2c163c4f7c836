"""The first label of every example is -100."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="first_label_untrained",
    why="a trainer's shift would predict it from the last token of the document before it",
    bad=lambda context: pl.col("first_is_trained"),
    breaks={"first_is_trained": True},
    tasks=("sft", "prm"),
)
