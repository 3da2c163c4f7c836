"""A pack's seq_lengths add up to its tokens, and each example has its name."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="seq_lengths_fill_the_pack",
    why="attention is cut at seq_lengths; a wrong one lets one document read another",
    checks=(Equal("n_tokens", "n_in_examples"),),
    breaks={"n_in_examples": 0},
    layouts=("packed",),
    level=ROW,
)
