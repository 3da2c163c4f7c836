"""Both sides of a pair end exactly on the end-of-turn token: in encoder families, the separator."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="answers_end_in_end_of_turn",
    why="a decoder's reward is read at the last token, which must be the same on both sides; an "
    "encoder's texts end in their separator",
    checks=(
        Between("chosen_last_id", "end_of_turn_id", "end_of_turn_id"),
        Between("rejected_last_id", "end_of_turn_id", "end_of_turn_id"),
    ),
    breaks={"rejected_last_id": -1},
    tasks=("rm",),
)
