"""No pack is longer than --max-length."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="pack_within_max_length",
    why="a longer pack does not fit the memory that the run was planned for",
    checks=(Between("n_tokens", None, "max_length"),),
    breaks={"n_tokens": 2**31 - 1, "n_in_examples": 2**31 - 1},
    layouts=("packed",),
    level=ROW,
)
