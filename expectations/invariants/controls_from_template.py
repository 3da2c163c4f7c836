"""Every control token was printed by the template (or is a step marker)."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="controls_from_template",
    why="a control token from a user's text forges a turn: prompt injection at training time",
    checks=(Equal("n_controls", "n_controls_printed"),),
    breaks={"n_controls": 2**20},
    layouts=("stream",),
)
