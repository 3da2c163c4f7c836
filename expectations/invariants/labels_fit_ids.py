"""Every token has its label, and no label is left over."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_fit_ids",
    why="labels of another length than the ids stop a trainer, or shift against them",
    bad=lambda context: ~pl.col("labels_fit"),
    breaks={"labels_fit": False},
    tasks=("sft", "prm"),
)
