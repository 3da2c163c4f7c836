"""No example is empty or longer than --max-length."""

from __future__ import annotations

import polars as pl

from expectations.contract import Context, Invariant


def _bad(context: Context) -> pl.Expr:
    names = ("chosen_n_tokens", "rejected_n_tokens") if context.task == "rm" else ("n_tokens",)
    return (pl.max_horizontal(*names) > context.max_length) | (pl.min_horizontal(*names) < 1)


INVARIANT = Invariant(
    name="length_within_bounds",
    why="a trainer cuts what is too long, and the end-of-turn token is what it cuts first",
    bad=_bad,
    breaks={"n_tokens": 2**31 - 1, "rejected_n_tokens": 2**31 - 1},
)
