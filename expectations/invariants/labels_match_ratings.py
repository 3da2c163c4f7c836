"""Each labelled marker holds its rating's reward token; every other position is -100."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_match_ratings",
    why="the loss is read at the markers over the reward tokens; any other label is noise in it",
    bad=lambda context: (
        (pl.col("n_labels") != pl.col("n_labelled"))
        | (pl.col("n_labels_off_markers") > 0)
        | (pl.col("n_labels_no_reward") > 0)
        | (pl.col("n_labels_not_ratings") > 0)
    ),
    breaks={"n_labels_off_markers": 1},
    tasks=("prm",),
)
