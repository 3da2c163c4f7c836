"""No row has examples on both the train and the test side."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="sides_disjoint",
    why="a row that is trained on and tested on makes the test say what one hopes to hear",
    checks=(none("n_rows_on_both_sides"),),
    breaks={"n_rows_on_both_sides": 1},
    level=DATASET,
)
