"""Parts and plan to shards: each shard is made, written, read back and judged on its own."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from expectations.contract import Context
from expectations.suite import Finding, judge
from pipeline.plan import part_of
from pipeline.recipe import Recipe
from stages.columns import IGNORED, Ints
from stages.errors import SurroundingsError
from stages.pack import pack
from stages.pad import pad
from stages.ragged import ragged

BATCH_ROWS = 256  # rows per record batch: what a random read touches


@dataclass(frozen=True, slots=True)
class Source:
    """Where one part's examples come from."""

    path: str
    name: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Gather:
    """What all shards of a build have in common.

    Attributes:
        starts: index of each part's first example, and the total.
        width: of padded rows.
        with_margin: every row of the build has a margin.
    """

    recipe: Recipe
    sources: tuple[Source, ...]
    starts: Ints
    folder: str
    width: int
    with_margin: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard to make: examples in stored order, and how many each training row holds."""

    path: str  # relative to the build
    split: str
    order: Ints
    sizes: Ints


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard as it was written."""

    path: str
    split: str
    rows: int
    examples: int
    tokens: int
    trained: int
    padding: int
    bytes: int
    sha256: str
    soft_labels: bool
    findings: tuple[Finding, ...]
    first_row_ids: tuple[str, ...]


def row_ids(source: Source, part: pa.Table | pa.RecordBatch) -> pa.Array:
    """Names of a part's examples: path, line and sequence."""
    lines = (part.column("line").to_numpy() + source.first_line + 1).tolist()
    sequences = part.column("sequence").to_pylist()
    return pa.array(
        [
            f"{source.name}:{line}" if k < 0 else f"{source.name}:{line}#{k}"
            for line, k in zip(lines, sequences, strict=True)
        ],
        pa.string(),
    )


def collect(shared: Gather, order: Ints) -> pa.Table:
    """The examples of these indices, in this order, with their row ids."""
    parts = part_of(shared.starts, order)
    kept = [name for name in shared.recipe.task.kept if name != "margin" or shared.with_margin]
    pieces, places = [], []
    for number in np.unique(parts):
        mine = np.flatnonzero(parts == number)
        local = order[mine] - shared.starts[number]
        source = shared.sources[number]
        with pa.memory_map(source.path) as file:
            table = pa.ipc.open_file(file).read_all()
            piece = table.select(["line", "sequence", *kept]).take(pa.array(local))
            ids = row_ids(source, piece)
        pieces.append(piece.select(kept).append_column("row_id", ids))
        places.append(mine)
    inverse = np.argsort(np.concatenate(places), kind="stable")
    table = pa.concat_tables(pieces).combine_chunks()
    if len(pieces) > 1:
        table = table.take(pa.array(inverse)).combine_chunks()
    return table


def lay_out(table: pa.Table, layout: str, sizes: Ints, width: int, recipe: Recipe) -> pa.Table:
    """Training rows of a layout from examples in stored order."""
    if layout == "packed":
        return pack(table, sizes)
    if layout == "padded":
        model = recipe.model
        return pad(table, width, model.profile.padding_side, model.pad_id)
    return ragged(table)


def write(path: Path, table: pa.Table) -> str:
    """Write an Arrow IPC stream, durably; returns its sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        with pa.ipc.new_stream(pa.PythonFile(file, "w"), table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH_ROWS)
        file.flush()
        os.fsync(file.fileno())
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: Path) -> pa.Table:
    """A shard as a trainer reads it."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _stored(table: pa.Table) -> tuple[int, int]:
    """Trained tokens of a shard, and its stored ids, padding included."""
    names = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    stored = sum(len(chunk.flatten()) for name in names for chunk in table.column(name).chunks)
    if "labels" not in table.schema.names:
        return 0, stored
    labels = [chunk.flatten().to_numpy() for chunk in table.column("labels").chunks]
    return sum(int((values != IGNORED).sum()) for values in labels), stored


def make_shard(shared: Gather, shard: Shard) -> ShardReport:
    """Make, write, read back and judge one shard."""
    recipe = shared.recipe
    layout = recipe.config.layout
    examples = collect(shared, shard.order)
    tokens = _stored(examples)[1]
    ids = examples.column("row_id")
    table = lay_out(examples, layout, shard.sizes, shared.width, recipe)
    path = Path(shared.folder) / shard.path
    try:
        sha256 = write(path, table)
        written = read(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SurroundingsError(
            f"Shard {shard.path} cannot be written: {error}.", "Make room on the disk."
        ) from error
    context = Context(recipe.config.task, layout, recipe.config.longest_example, recipe.model)
    findings = judge(written, context)
    trained, stored = _stored(written)
    return ShardReport(
        shard.path,
        shard.split,
        written.num_rows,
        len(shard.order),
        tokens,
        trained,
        stored - tokens,
        path.stat().st_size,
        sha256,
        _soft(written),
        tuple(findings),
        tuple(ids[i].as_py() for f in findings for i in f.rows[:1] if i < len(ids)),
    )


def _soft(table: pa.Table) -> bool:
    if "step_labels" not in table.schema.names:
        return False
    values = pa.chunked_array(
        [chunk.flatten() for chunk in table.column("step_labels").chunks], pa.float32()
    )
    found = values.drop_null().to_numpy()
    return bool(((found != 0) & (found != 1)).any())
