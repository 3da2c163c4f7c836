"""Padding is the pad token, on the declared side, exactly where the attention mask is 0."""

from __future__ import annotations

import polars as pl

from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="padding_in_place",
    why="padding on the other side breaks flash-attention and moves the token a reward is read at",
    bad=lambda context: (
        (pl.col("n_mask_out_of_place") > 0)
        | (pl.col("n_padding_not_pad") > 0)
        | (pl.col("n_mask_not_binary") > 0)
        | ~pl.col("same_width")
    ),
    breaks={"n_padding_not_pad": 1},
    layouts=("padded",),
    level=ROW,
)
