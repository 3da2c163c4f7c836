"""The pad token stands nowhere but in padding."""

from __future__ import annotations

import polars as pl

from expectations.contract import Context, Invariant


def _bad(context: Context) -> pl.Expr:
    if context.task == "rm":
        return pl.col("chosen_n_pad") + pl.col("rejected_n_pad") > 0
    return pl.col("n_pad") > 0


INVARIANT = Invariant(
    name="no_padding_inside",
    why="a loss or a mask derived from the pad id would hide a real token",
    bad=_bad,
    breaks={"n_pad": 1, "chosen_n_pad": 1},
)
