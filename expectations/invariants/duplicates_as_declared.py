"""As many examples equal an earlier one as the manifest says; none after --dedup."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="duplicates_as_declared",
    why="duplicates weigh an example more than the data did",
    checks=(Equal("duplicates_stored", "duplicates_declared"),),
    breaks={"duplicates_stored": -1},
    level=DATASET,
)
