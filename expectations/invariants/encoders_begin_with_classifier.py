"""Both sides of an encoder's pair begin with the token that the reward is read at."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="encoders_begin_with_classifier",
    why="an encoder's reward is read at its first token, which no text may take the place of",
    checks=(
        Between("chosen_first_id", "first_id", "first_id"),
        Between("rejected_first_id", "first_id", "first_id"),
    ),
    breaks={"chosen_first_id": -1},
    tasks=("rm",),
    families=("encoder",),
)
