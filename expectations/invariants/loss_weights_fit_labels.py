"""Every token has its loss weight: positive where it is trained, zero where it is not."""

from __future__ import annotations

from expectations.checks import holds, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="loss_weights_fit_labels",
    why="a weight on the wrong token trains what must not be trained, or nothing where it must",
    checks=(holds("weights_fit"), none("n_weights_off")),
    breaks={"n_weights_off": 1},
    tasks=("sft",),
)
