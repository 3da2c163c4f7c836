"""Every example has as many tokens as the plan says, so that none is split or joined."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import PLANNED, Invariant

INVARIANT = Invariant(
    name="examples_whole",
    why="a boundary one token off gives a document another's token, and keeps every sum as it was",
    checks=(Equal("n_tokens", "n_tokens_planned"),),
    breaks={"n_tokens_planned": -1},
    tasks=("sft", "prm"),
    evidence=PLANNED,
)
