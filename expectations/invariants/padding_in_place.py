"""Padding is the pad token, on the declared side, exactly where the attention mask is 0."""

from __future__ import annotations

from expectations.checks import holds, none
from expectations.contract import ROW, Invariant

INVARIANT = Invariant(
    name="padding_in_place",
    why="padding on the other side breaks flash-attention and moves the token a reward is read at",
    checks=(
        none("n_mask_out_of_place"),
        none("n_padding_not_pad"),
        none("n_mask_not_binary"),
        holds("same_width"),
    ),
    breaks={"n_padding_not_pad": 1},
    layouts=("padded",),
    level=ROW,
)
