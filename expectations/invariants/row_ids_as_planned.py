"""Every example carries the name of the row that it was made from."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import PLANNED, Invariant

INVARIANT = Invariant(
    name="row_ids_as_planned",
    why="an example under another row's name leads every later question to the wrong row",
    checks=(none("name_differs"),),
    breaks={"name_differs": 1},
    evidence=PLANNED,
)
