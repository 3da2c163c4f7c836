"""Every shard opens with pyarrow, with polars, and as datasets reads it, with the same rows."""

from __future__ import annotations

from expectations.checks import Equal, holds, none
from expectations.contract import SHARD, Invariant

INVARIANT = Invariant(
    name="shards_open",
    why="a shard that a trainer cannot open, or opens as something else, stops its run",
    checks=(
        holds("opens_pyarrow"),
        holds("opens_polars"),
        holds("opens_datasets"),
        none("n_columns_differ"),
        Equal("n_rows", "n_rows_planned"),
        Equal("n_rows", "n_rows_polars"),
    ),
    breaks={"opens_polars": 0},
    level=SHARD,
)
