"""Every row and every example is used, refused or a duplicate, exactly one of the three."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="ledger_balanced",
    why="data that vanishes without a reason is a fault nobody looks for",
    checks=(Equal("rows_in", "rows_accounted"), Equal("examples_made", "examples_accounted")),
    breaks={"rows_accounted": -1},
    level=DATASET,
)
