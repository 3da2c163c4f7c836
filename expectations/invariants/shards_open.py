"""Every shard opens with pyarrow, with polars, and as datasets reads it, with its columns."""

from __future__ import annotations

from expectations.checks import holds, none
from expectations.contract import SHARD, Invariant

INVARIANT = Invariant(
    name="shards_open",
    why="a shard that a trainer cannot open, or opens as something else, stops its run",
    checks=(
        holds("opens_pyarrow"),
        holds("opens_polars"),
        holds("opens_datasets"),
        none("n_columns_differ"),
    ),
    breaks={"opens_polars": 0},
    level=SHARD,
)
