"""The first label of every example is -100."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="first_label_untrained",
    why="a trainer's shift would predict it from the last token of the document before it",
    checks=(none("first_is_trained"),),
    breaks={"first_is_trained": 1},
    tasks=("sft", "prm"),
)
