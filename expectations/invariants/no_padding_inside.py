"""The pad token stands nowhere but in padding."""

from __future__ import annotations

from expectations.checks import every_sequence, none
from expectations.contract import Invariant

INVARIANT = Invariant(
    name="no_padding_inside",
    why="a loss or a mask derived from the pad id would hide a real token",
    checks=(*every_sequence(none("n_pad")),),
    breaks={"n_pad": 1, "chosen_n_pad": 1},
)
