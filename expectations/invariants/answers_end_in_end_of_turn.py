"""Both sides of a pair end exactly on the end-of-turn token: in encoder families, the separator."""

from __future__ import annotations

import polars as pl

from expectations.contract import Context, Invariant


def _bad(context: Context) -> pl.Expr:
    end = context.model.end_of_turn_id
    return (pl.col("chosen_last_id") != end) | (pl.col("rejected_last_id") != end)


INVARIANT = Invariant(
    name="answers_end_in_end_of_turn",
    why="a decoder's reward is read at the last token, which must be the same on both sides; an "
    "encoder's texts end in their separator",
    bad=_bad,
    breaks={"rejected_last_id": -1},
    tasks=("rm",),
)
