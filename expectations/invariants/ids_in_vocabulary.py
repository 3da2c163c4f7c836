"""Every id lies inside the embedding."""

from __future__ import annotations

from expectations.checks import Between, every_sequence, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="ids_in_vocabulary",
    why="an id outside the embedding crashes on a GPU, hours into a run",
    checks=(
        *every_sequence(Between("max_id", None, "last_id")),
        *every_sequence(none("n_negative")),
    ),
    breaks={"max_id": 2**31 - 1, "chosen_max_id": 2**31 - 1},
)
