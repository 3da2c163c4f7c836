"""A pack's seq_lengths add up to its tokens, and each example has its name."""

from __future__ import annotations

import polars as pl

from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="seq_lengths_fill_the_pack",
    why="attention is cut at seq_lengths; a wrong one lets one document read another",
    bad=lambda context: (
        (pl.col("n_tokens") != pl.col("n_in_examples"))
        | (pl.col("n_examples") != pl.col("n_names"))
        | (pl.col("n_empty_examples") > 0)
    ),
    breaks={"n_in_examples": 0},
    layouts=("packed",),
    level=ROW,
)
