"""Markers, step positions and step labels are equally many, and the positions are the markers'."""

from __future__ import annotations

import polars as pl

from expectations.contract import Invariant

INVARIANT = Invariant(
    name="markers_match_steps",
    why="a trainer pairs the n-th marker with the n-th label; one too few shifts all that follow",
    bad=lambda context: (
        (pl.col("n_markers") != pl.col("n_positions"))
        | (pl.col("n_markers") != pl.col("n_step_labels"))
        | (pl.col("n_positions_off_markers") > 0)
        | (pl.col("n_markers") < 1)
    ),
    breaks={"n_markers": 0},
    tasks=("prm",),
)
