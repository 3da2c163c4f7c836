"""Every example is the one that was encoded for its place: ids, labels, ratings and numbers."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import PLANNED, Invariant

INVARIANT = Invariant(
    name="examples_as_encoded",
    why="a token that was lost, moved or changed on the way to disk is not what was proved",
    checks=(none("digest_differs"), none("n_values_differ")),
    breaks={"digest_differs": 1},
    evidence=PLANNED,
)
