"""The beginning-of-text token stands nowhere but at the beginning."""

from __future__ import annotations

from expectations.checks import every_sequence, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="no_bos_inside",
    why="a second one inside a text is what a template and a tokenizer that both print it leave",
    checks=(*every_sequence(none("n_bos_inside")),),
    breaks={"n_bos_inside": 1, "chosen_n_bos_inside": 1},
)
