"""A pair's margin, where it has one, is a finite number."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="margin_finite",
    why="an infinite margin makes the loss infinite, or not a number",
    bad=lambda context: ~pl.col("margin_finite"),
    breaks={"margin_finite": False},
    tasks=("rm",),
)
