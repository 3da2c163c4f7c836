"""Both sides of an encoder's pair begin with the token that the reward is read at."""

from __future__ import annotations

import polars as pl

from expectations.contract import Context, Invariant


def _bad(context: Context) -> pl.Expr:
    pair = context.model.profile.pair
    first = context.model.controls[pair.before[0]] if pair else -1
    return (pl.col("chosen_first_id") != first) | (pl.col("rejected_first_id") != first)


INVARIANT = Invariant(
    name="encoders_begin_with_classifier",
    why="an encoder's reward is read at its first token, which no text may take the place of",
    bad=_bad,
    breaks={"chosen_first_id": -1},
    tasks=("rm",),
    families=("encoder",),
)
