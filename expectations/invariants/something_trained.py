"""At least one token of every example is trained."""

from __future__ import annotations

from expectations.checks import Between
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="something_trained",
    why="a row without labels costs compute and teaches nothing; alone in a batch its loss is NaN",
    checks=(Between("n_trained", 1),),
    breaks={"n_trained": 0},
    tasks=("sft", "prm"),
)
