"""Every trained turn ends in a supervised end-of-turn token."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="turns_end_supervised",
    why="a model that is never taught the end of a turn never stops",
    bad=lambda context: pl.col("n_open_turns") > 0,
    breaks={"n_open_turns": 1},
    tasks=("sft",),
)
