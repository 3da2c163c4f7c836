"""Every trained turn ends in a supervised end-of-turn token."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="turns_end_supervised",
    why="a model that is never taught the end of a turn never stops",
    checks=(none("n_open_turns"),),
    breaks={"n_open_turns": 1},
    tasks=("sft",),
)
