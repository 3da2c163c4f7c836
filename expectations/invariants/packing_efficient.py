"""Packs are at least nine tenths full, where there are enough of them to tell."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="packing_efficient",
    why="another --max-length would train the same tokens in fewer steps",
    checks=(Between("efficiency_ppm", 900_000),),
    breaks={"efficiency_ppm": 0},
    layouts=("packed",),
    level=DATASET,
    severity="warning",
)
