"""A pair's margin, where it has one, is a finite number."""

from __future__ import annotations

from expectations.checks import holds
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="margin_finite",
    why="an infinite margin makes the loss infinite, or not a number",
    checks=(holds("margin_finite"),),
    breaks={"margin_finite": 0},
    tasks=("rm",),
)
