"""Chosen differs from rejected, as stored."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="chosen_differs",
    why="equal sides have a loss of log 2 whatever the model says",
    checks=(none("sides_equal"),),
    breaks={"sides_equal": 1},
    tasks=("rm",),
)
