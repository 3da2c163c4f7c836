"""Between one and ninety-nine in a hundred rated steps are good, where enough are rated."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="positives_within_bounds",
    why="a model that always says the same is then right almost always, and has learnt nothing",
    checks=(Between("positives_ppm", 10_000, 990_000),),
    breaks={"positives_ppm": 0},
    tasks=("prm",),
    level=DATASET,
    severity="warning",
)
