"""Chosen differs from rejected, as stored."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="chosen_differs",
    why="equal sides have a loss of log 2 whatever the model says",
    bad=lambda context: pl.col("sides_equal"),
    breaks={"sides_equal": True},
    tasks=("rm",),
)
