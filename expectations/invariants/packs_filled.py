"""No two packs would fit into one: the floor of what packing must achieve."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="packs_filled",
    why="half empty packs are twice the steps, and twice the money",
    checks=(none("n_packs_mergeable"),),
    breaks={"n_packs_mergeable": 1},
    layouts=("packed",),
    level=DATASET,
)
