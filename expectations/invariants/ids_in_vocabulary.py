"""Every id lies inside the embedding."""

from __future__ import annotations

import polars as pl

from expectations.contract import Context, Invariant


def _bad(context: Context) -> pl.Expr:
    size = context.model.profile.embedding_size
    if context.task != "rm":
        return (pl.col("max_id") >= size) | (pl.col("n_negative") > 0)
    over = pl.max_horizontal("chosen_max_id", "rejected_max_id") >= size
    return over | (pl.col("chosen_n_negative") + pl.col("rejected_n_negative") > 0)


INVARIANT = Invariant(
    name="ids_in_vocabulary",
    why="an id outside the embedding crashes on a GPU, hours into a run",
    bad=_bad,
    breaks={"max_id": 2**31 - 1, "chosen_max_id": 2**31 - 1},
)
