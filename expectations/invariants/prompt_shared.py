"""Both sides begin with the same prompt, id for id."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="prompt_shared",
    why="sides that answer different prompts compare prompts, not answers",
    bad=lambda context: ~pl.col("prompt_shared"),
    breaks={"prompt_shared": False},
    tasks=("rm",),
)
