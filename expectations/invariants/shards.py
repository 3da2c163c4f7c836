"""Shards as files: every library that opens one gets the rows and columns that were planned.

What is known of a whole build only (the planned hash and number of rows of a shard, and whether
``datasets`` lists it) is added where the build is checked.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from expectations.contract import (
    COMPARES,
    PACKS,
    PADS,
    SHARD,
    Columns,
    Context,
    Equal,
    Invariant,
    Metrics,
    Subject,
    holds,
    none,
)
from expectations.stored_rows import ShardFile
from stages.columns import IGNORED, TYPES, numbers
from stages.errors import require_reading


def _rows_in_polars(path: Path) -> int:
    """How many rows polars reads; -1 where it cannot.

    It reads the schema and the head of every batch, but the values of one column only.
    """
    import polars as pl  # which nothing else of a build needs

    try:
        return pl.read_ipc_stream(path, columns=[0]).height
    except (pl.exceptions.PolarsError, OSError) as error:
        require_reading(error)
        return -1


def _columns_differ(schema: pa.Schema, context: Context) -> int:
    """How many columns a shard lacks, or has with a type other than the declared one."""
    traits = context.traits
    names = list(context.kind.requires)
    names += ["seq_lengths", "row_ids"] if PACKS in traits else ["row_id"]
    if PADS in traits:
        tails = ["chosen_attention_mask", "rejected_attention_mask"]
        names += tails if COMPARES in traits else ["attention_mask"]
    missing = [name for name in names if name not in schema.names]
    other = [field for field in schema if TYPES.get(field.name) != field.type]
    return len(missing) + len(other)


def _opened(shard: ShardFile) -> Columns:
    in_polars = _rows_in_polars(shard.path)
    table = shard.table
    differ = 0 if table is None else _columns_differ(table.schema, shard.context)
    return {
        "opens_pyarrow": [table is not None],
        "opens_polars": [in_polars >= 0],
        "n_rows": [-1 if table is None else table.num_rows],
        "n_rows_polars": [in_polars],
        "n_columns_differ": [differ],
    }


def _contents(shard: ShardFile) -> Columns:
    """Stored ids, padding included, and trained tokens; 0 where the columns are wrong."""
    table = shard.table
    stored = trained = 0
    if table is not None and not _columns_differ(table.schema, shard.context):
        for name in ("input_ids", "chosen_ids", "rejected_ids"):
            if name in table.schema.names:
                stored += sum(len(numbers(chunk)[1]) for chunk in table.column(name).chunks)
        if "labels" in table.schema.names:
            chunks = (numbers(chunk)[1] for chunk in table.column("labels").chunks)
            trained = sum(int((labels != IGNORED).sum()) for labels in chunks)
    return {"n_stored": [stored], "n_trained": [trained]}


_of_shards = partial(Invariant, level=SHARD)


SUBJECT = Subject(
    metrics=(Metrics(measure=_opened, level=SHARD), Metrics(measure=_contents, level=SHARD)),
    invariants=(
        _of_shards(
            name="shards_open",  # with pyarrow, polars and datasets, with their columns
            why="a shard that does not open, or has other columns, stops a trainer",
            checks=(
                holds("opens_pyarrow"),
                holds("opens_polars"),
                holds("opens_datasets"),
                none("n_columns_differ"),
            ),
            breaks={"opens_polars": 0},
        ),
        _of_shards(
            name="shards_complete",  # whoever reads them
            why="a shard must have exactly the rows that were planned",
            checks=(Equal("n_rows", "n_rows_planned"), Equal("n_rows", "n_rows_polars")),
            breaks={"n_rows_planned": -1},
        ),
        _of_shards(
            name="hashes_match",  # each is, byte for byte, the file that was measured
            why="a file that changed after the checks was not checked",
            checks=(none("hash_differs"),),
            breaks={"hash_differs": 1},
        ),
    ),
)
