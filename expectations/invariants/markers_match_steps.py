"""Markers, step positions and step labels are equally many, and the positions are the markers'."""

from __future__ import annotations

from expectations.checks import Between, Equal, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="markers_match_steps",
    why="a trainer pairs the n-th marker with the n-th label; one too few shifts all that follow",
    checks=(
        Equal("n_markers", "n_positions"),
        Equal("n_markers", "n_step_labels"),
        none("n_positions_off_markers"),
        Between("n_markers", 1),
    ),
    breaks={"n_markers": 0},
    tasks=("prm",),
)
