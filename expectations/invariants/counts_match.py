"""What is stored adds up to what the plan kept: examples, tokens and trained tokens."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import DATASET, Invariant

INVARIANT = Invariant(
    name="counts_match",
    why="an example that is missing, or there twice, changes what is trained and what is reported",
    checks=(
        Equal("examples_stored", "examples_kept"),
        Equal("tokens_stored", "tokens_kept"),
        Equal("trained_stored", "trained_kept", ("sft", "prm")),
    ),
    breaks={"examples_stored": -1},
    level=DATASET,
)
