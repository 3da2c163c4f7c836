"""Labels equal input_ids wherever they are trained."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_equal_ids",
    why="a label that is not the next token teaches the model to write something else",
    checks=(none("n_labels_not_ids"),),
    breaks={"n_labels_not_ids": 1},
    tasks=("sft",),
)
