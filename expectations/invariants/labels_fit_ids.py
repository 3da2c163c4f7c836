"""Every token has its label, and no label is left over."""

from __future__ import annotations

from expectations.checks import holds
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="labels_fit_ids",
    why="labels of another length than the ids stop a trainer, or shift against them",
    checks=(holds("labels_fit"),),
    breaks={"labels_fit": 0},
    tasks=("sft", "prm"),
)
