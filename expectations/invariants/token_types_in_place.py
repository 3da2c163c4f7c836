"""Token types are 1 on the answer and nowhere else, in families that have them."""

from __future__ import annotations

from expectations.checks import none
from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="token_types_in_place",
    why="BERT tells the two texts apart by their token types",
    checks=(none("n_types_out_of_place"),),
    breaks={"n_types_out_of_place": 1},
    tasks=("rm",),
    layouts=("padded",),
    families=("encoder",),
    level=ROW,
)
