"""Every shard has the rows that were planned for it, whoever reads it."""

from __future__ import annotations

from expectations.checks import Equal
from expectations.contract import SHARD, Invariant

INVARIANT = Invariant(
    name="shards_complete",
    why="a shard with a row too many or too few is not the one that was planned",
    checks=(Equal("n_rows", "n_rows_planned"), Equal("n_rows", "n_rows_polars")),
    breaks={"n_rows_planned": -1},
    level=SHARD,
)
