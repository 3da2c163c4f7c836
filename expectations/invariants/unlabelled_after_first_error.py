"""Where data rates up to the first error, no later step has a rating."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import STORED, Invariant

INVARIANT = Invariant(
    name="unlabelled_after_first_error",
    why="whether a step after the first error is right is unknown; a rating there is made up",
    checks=(none("n_labelled_after_error"),),
    breaks={"n_labelled_after_error": 1},
    tasks=("prm",),
    evidence=STORED,
)
