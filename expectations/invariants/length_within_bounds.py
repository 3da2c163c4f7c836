"""No example is empty or longer than --max-length."""

from __future__ import annotations

from expectations.checks import Between, every_sequence
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="length_within_bounds",
    why="a trainer cuts what is too long, and the end-of-turn token is what it cuts first",
    checks=(*every_sequence(Between("n_tokens", 1, "max_length")),),
    breaks=dict.fromkeys(("n_tokens", "n_tokens_planned", "rejected_n_tokens"), 2**31 - 1),
)
