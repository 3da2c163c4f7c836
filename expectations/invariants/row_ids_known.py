"""Every row id is an input of the build and a line of it."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import STORED, Invariant

INVARIANT = Invariant(
    name="row_ids_known",
    why="an example that comes from nowhere was not in the data",
    checks=(Between("source", 0), Between("line", 1)),
    breaks={"source": -1},
    evidence=STORED,
)
