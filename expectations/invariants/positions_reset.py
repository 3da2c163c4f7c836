"""Positions start again at each example of a pack, once for every name."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="positions_reset",
    why="positions that run on let one document follow another, as if they were one text",
    checks=(Equal("n_restarts", "n_names"), Equal("n_examples", "n_names")),
    breaks={"n_restarts": -1},
    layouts=("packed",),
    level=ROW,
)
