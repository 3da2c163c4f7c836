"""Reads a shard back from the disk and computes its metrics, in the process that wrote it.

The metrics are written to files beside the shards, as long as the build is staged; the gate reads
them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from expectations import metric_tables
from expectations.contract import EXAMPLE, ROW, Context
from expectations.readback.shard_file import ShardFile
from expectations.readback.stored_rows import Planned, Sources, StoredRows, groups
from stages import layouts
from stages.errors import GateError

METRICS = ".metrics"  # in the staging directory; removed before the build is published
_UNMEASURED = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    pl.exceptions.PolarsError,
)

Tables = tuple[pl.DataFrame, pl.DataFrame | None]  # examples, rows


@dataclass(frozen=True, slots=True)
class Measured:
    """The metrics of one shard, as it was read back.

    Attributes:
        counts: its row of the ``shards`` table, without the columns that need the whole build.
        rows: by table of metrics, how many rows of it come from this shard.
        soft_labels: some rating is neither 0 nor 1.
    """

    path: str
    split: str
    counts: dict[str, int]
    rows: dict[str, int]
    soft_labels: bool


def metrics_file(folder: Path, shard: str, table: str) -> Path:
    """Where a table of a shard's metrics is kept."""
    return folder / f"{shard.replace('/', '-')}.{table}.arrow"


def read(path: Path) -> pa.Table:
    """A shard as a trainer reads it."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _open_table(path: Path) -> pa.Table | None:
    try:
        table = read(path)
        table.validate()
    except (pa.ArrowException, OSError):
        return None
    return table


def _soft(table: pa.Table) -> bool:
    if "step_labels" not in table.schema.names:
        return False
    chunks = [chunk.flatten().drop_null() for chunk in table.column("step_labels").chunks]
    values = pa.chunked_array(chunks, pa.float32()).to_numpy()
    return bool(((values != 0) & (values != 1)).any())


# A large shard is measured in groups of rows, to bound the memory that its metrics take.
def _tables(
    table: pa.Table, context: Context, sources: Sources, planned: Planned | None
) -> Iterator[Tables]:
    layout = layouts.load(context.layout)
    start = 0
    for group in groups(table):
        part = planned and planned.slice(start, len(planned.tokens))
        rows = StoredRows(group, context, sources=sources, planned=part)
        start += len(rows)
        of_rows = metric_tables.training_rows(rows) if layout.packs or layout.pads else None
        yield metric_tables.examples(rows), of_rows


def measure(
    path: Path,
    shard: str,
    split: str,
    folder: Path,
    context: Context,
    sources: Sources,
    planned: Planned | None,
) -> Measured:
    """Read a shard back, compute its metrics, and write them to files.

    Args:
        path: the file; ``shard`` its name in the build.
        folder: where the files of metrics go.
        planned: what the shard must hold; None in a finished build.

    Raises:
        GateError: a metric cannot be computed, so the rows cannot be judged.
    """
    table = _open_table(path)
    try:
        counts = metric_tables.shard(ShardFile(path, table, context))
        # Without the columns there are no metrics; the invariant shards_open fails such a shard.
        if table is None or counts["n_columns_differ"]:
            return Measured(path=shard, split=split, counts=counts, rows={}, soft_labels=False)
        tables = list(_tables(table, context, sources, planned))
        soft = _soft(table)
    except _UNMEASURED as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise GateError(
            f"{shard} cannot be checked: {what}.",
            "Nothing was published; please report it with the recipe.",
        ) from error
    rows = _write_tables(tables, folder, shard)
    # n_tokens, or chosen_n_tokens and rejected_n_tokens: a pair has both of its sides counted.
    lengths = (m[0].select(pl.col("^.*n_tokens$").sum()).row(0) for m in tables)
    counts["n_examples"] = rows.get(EXAMPLE, 0)
    counts["n_tokens"] = sum(sum(pair) for pair in lengths)
    return Measured(path=shard, split=split, counts=counts, rows=rows, soft_labels=soft)


def _write_tables(tables: list[Tables], folder: Path, shard: str) -> dict[str, int]:
    """Write each table of metrics to its file; returns how many rows each has."""
    frames = {EXAMPLE: [m[0] for m in tables], ROW: [m[1] for m in tables if m[1] is not None]}
    rows = {}
    for name, parts in frames.items():
        if parts:
            joined = pl.concat(parts)
            joined.write_ipc(metrics_file(folder, shard, name), compression="uncompressed")
            rows[name] = len(joined)
    return rows
