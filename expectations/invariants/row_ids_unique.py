"""No row id is there twice."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="row_ids_unique",
    why="an example that is there twice is trained twice, and its name no longer says which",
    checks=(none("n_names_repeated"),),
    breaks={"n_names_repeated": 1},
    level=DATASET,
)
