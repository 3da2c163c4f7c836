"""Parts and plan to shards: each shard is made, written, read back and measured on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from expectations.readback.stored_rows import Planned, Sources
from pipeline.recipe.recipe import Recipe
from pipeline.shards.answers import Answers, Counting
from pipeline.shards.measured import METRICS, Measured, measure
from pipeline.shards.plan import part_of
from stages import columns, layouts
from stages.chat_template import loss_weights
from stages.columns import IDS, Ints, list_parts, make_list, offsets_of, whole
from stages.errors import SurroundingsError
from stages.files import file_hash
from stages.tokens.folded_labels import unfold

BATCH_ROWS = 256  # rows per record batch: what a random read touches


@dataclass(frozen=True, slots=True)
class PartSource:
    """Where one part's examples come from."""

    path: str
    name: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Gather:
    """What all shards of a build have in common.

    Attributes:
        starts: index of each part's first example, and the total.
        inputs: all that row ids may name.
        width: of padded rows.
        with_margin: some row of the build has a margin; the others have null.
        with_weights: some row of the build has a loss weight other than 0 and 1.
    """

    recipe: Recipe
    sources: tuple[PartSource, ...]
    inputs: Sources
    starts: Ints
    folder: str
    width: int
    with_margin: bool
    with_weights: bool

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns of the parts that the build's rows do not have."""
        absent = {"margin": not self.with_margin, "loss_weights": not self.with_weights}
        return tuple(name for name, gone in absent.items() if gone)


@dataclass(frozen=True, slots=True)
class ShardWork:
    """One shard to make.

    Attributes:
        path: relative to the build.
        order: examples, as they are stored.
        sizes: how many of them each training row holds.
        tokens, digest: of these examples, as the plan has them.
    """

    path: str
    split: str
    order: Ints
    sizes: Ints
    tokens: Ints
    digest: tuple[Ints, Ints]

    def __str__(self) -> str:
        return f"Shard {self.path}"


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: what was written, and what was read back."""

    path: str
    split: str
    rows: int
    examples: int
    tokens: int
    bytes: int
    sha256: str
    measured: Measured
    answers: Answers

    @property
    def padding(self) -> int:
        """Stored ids that are none of an example's."""
        return max(0, self.measured.counts.get("n_stored", self.tokens) - self.tokens)


def row_ids(source: PartSource, part: pa.Table | pa.RecordBatch) -> list[str]:
    """Names of a part's examples: path, line and sequence."""
    lines = (part.column("line").to_numpy() + source.first_line + 1).tolist()
    sequences = part.column("sequence").to_pylist()
    return [
        f"{source.name}:{line}" if k < 0 else f"{source.name}:{line}#{k}"
        for line, k in zip(lines, sequences, strict=True)
    ]


class _Lists:
    """Picks lists of numbers out of several parts, many times faster than ``take`` of all of them.

    A list is a slice of its part's mapped bytes; one join of the slices is all that is copied.
    """

    def __init__(self) -> None:
        self._views: list[memoryview] = []
        self._starts: list[list[int]] = []
        self._type = pa.int32()

    def add(self, column: pa.ListArray) -> None:
        """The lists of one more part; all parts have numbers of one type."""
        offsets, values = list_parts(column)
        self._type = values.type
        width = values.type.bit_width // 8
        _, data = values.buffers()
        # Offsets count from the array's first value, which is not always the buffer's.
        view = memoryview(data or b"")[values.offset * width :]
        self._views.append(view)
        self._starts.append((offsets * width).tolist())  # in bytes

    def pick(self, parts: list[int], rows: list[int]) -> pa.ListArray:
        """List ``rows[i]`` of part ``parts[i]``, for every i."""
        views, starts = self._views, self._starts
        slices = [
            views[part][starts[part][row] : starts[part][row + 1]]
            for part, row in zip(parts, rows, strict=True)
        ]
        width = self._type.bit_width // 8
        lengths = np.fromiter((len(piece) for piece in slices), np.int64, len(slices)) // width
        joined = pa.py_buffer(b"".join(slices))
        values = pa.Array.from_buffers(self._type, int(lengths.sum()), [None, joined])
        return make_list(offsets_of(lengths), values)


class Collector:
    """Fetches examples from the parts, whose files it maps once."""

    def __init__(self, shared: Gather) -> None:
        self._shared = shared
        self._tables: dict[int, pa.Table] = {}
        self._names: dict[int, list[str]] = {}

    def table(self, part: int) -> pa.Table:
        """A part, mapped."""
        if part not in self._tables:
            path = self._shared.sources[part].path
            self._tables[part] = pa.ipc.open_file(pa.memory_map(path)).read_all()
        return self._tables[part]

    def _row_ids(self, part: int) -> list[str]:
        if part not in self._names:
            self._names[part] = row_ids(self._shared.sources[part], self.table(part))
        return self._names[part]

    def __call__(self, order: Ints) -> pa.Table:
        """The examples of these indices, in this order, with their row ids."""
        shared = self._shared
        parts = part_of(shared.starts, order)
        used, place = np.unique(parts, return_inverse=True)
        rows = (order - shared.starts[parts]).tolist()
        places = place.tolist()
        made: dict[str, pa.Array] = {}
        for name in shared.recipe.task.stored:
            if name in shared.left_out:
                continue
            pieces = [whole(self.table(part).column(name)) for part in used]
            if pieces[0].type == IDS or name == "loss_weights":
                lists = _Lists()
                for piece in pieces:
                    lists.add(piece)
                made[name] = lists.pick(places, rows)
            else:
                made[name] = _take(pieces, place, np.array(rows, np.int64))
        names = [self._row_ids(part) for part in used]
        ids = [names[part][row] for part, row in zip(places, rows, strict=True)]
        made["row_id"] = pa.array(ids, pa.string())
        table = unfold(pa.table(made))
        return loss_weights.spread(table) if shared.with_weights else table


def _take(pieces: list[pa.Array], place: Ints, rows: Ints) -> pa.Array:
    """The same for any type: take from all parts joined."""
    starts = offsets_of(np.array([len(piece) for piece in pieces], np.int64))
    return pa.concat_arrays(pieces).take(pa.array(starts[place] + rows))


def write(
    path: Path,
    order: Ints,
    sizes: Ints,
    examples: Callable[[Ints], pa.Table],
    rows: Callable[[pa.Table, Ints], pa.Table],
) -> tuple[str, int]:
    """Write a shard as an Arrow IPC stream, one record batch at a time.

    Args:
        order: the shard's examples; ``sizes``: how many of them each training row holds.
        examples: fetches examples by index; ``rows``: lays them out.

    Returns:
        The file's sha256, and the number of its tokens without padding.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    bounds = offsets_of(sizes)
    tokens = 0
    writer = None
    with pa.OSFile(str(path), "wb") as sink:
        for start in range(0, len(sizes), BATCH_ROWS):
            stop = min(start + BATCH_ROWS, len(sizes))
            block = examples(order[bounds[start] : bounds[stop]])
            tokens += _stored(block)
            table = rows(block, sizes[start:stop])
            writer = writer or pa.ipc.new_stream(sink, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return file_hash.sha256(path), tokens


class _Written(NamedTuple):
    """A shard's file: its size and hash, and its tokens without padding."""

    bytes: int
    sha256: str
    tokens: int


def _stored(table: pa.Table) -> int:
    """Ids of a block of examples, without padding."""
    names = {"input_ids", "chosen_ids", "rejected_ids"} & set(table.schema.names)
    return sum(len(chunk.flatten()) for name in names for chunk in table.column(name).chunks)


def _planned(shared: Gather, shard: ShardWork, collect: Collector) -> Planned:
    """What the rows of a shard must be, from plan and parts: never from what was written."""
    parts = part_of(shared.starts, shard.order)
    ordinals = {name: index for index, name in enumerate(shared.inputs.names)}
    rows = shard.order - shared.starts[parts]
    place = {name: np.empty(len(rows), np.int64) for name in ("source", "line", "sequence")}
    kept: list[str] = [n for n in shared.recipe.task.stored if n in ("prompt_length", "margin")]
    kept = [n for n in kept if n not in shared.left_out]
    values = {name: np.empty(len(rows), columns.TYPES[name].to_pandas_dtype()) for name in kept}
    for part in np.unique(parts):
        mine = parts == part
        source, table = shared.sources[part], collect.table(int(part))
        place["source"][mine] = ordinals[source.name]
        line = table.column("line").to_numpy()[rows[mine]]
        place["line"][mine] = line + source.first_line + 1
        place["sequence"][mine] = table.column("sequence").to_numpy()[rows[mine]]
        for name in kept:
            values[name][mine] = table.column(name).to_numpy()[rows[mine]]
    return Planned(tokens=shard.tokens, digest=shard.digest, place=place, values=values)


def _written(shared: Gather, shard: ShardWork, collect: Collector, counting: Counting) -> _Written:
    """Write a shard.

    Raises:
        SurroundingsError: the disk is full.
    """
    recipe, path = shared.recipe, Path(shared.folder) / shard.path
    layout, shape = layouts.load(recipe.config.plan.layout), recipe.shape(shared.width)

    def examples(order: Ints) -> pa.Table:
        block = collect(order)
        counting(block)
        return block

    try:
        sha256, tokens = write(
            path,
            shard.order,
            sizes=shard.sizes,
            examples=examples,
            rows=lambda table, sizes: layout.rows(table, sizes, shape),
        )
        return _Written(path.stat().st_size, sha256, tokens)
    except (pa.ArrowInvalid, OSError) as error:
        raise SurroundingsError(
            f"Shard {shard.path} cannot be written: {error}.", "Make room on the disk."
        ) from error


def make_shard(shared: Gather, shard: ShardWork) -> ShardReport:
    """Make, write, read back and measure one shard.

    Raises:
        SurroundingsError: the disk is full.
    """
    recipe = shared.recipe
    source = recipe.config.source
    collect = Collector(shared)
    counting = Counting(recipe.model, source.reasoning == "mask", source.train_on == "all")
    written = _written(shared, shard, collect=collect, counting=counting)
    measured = measure(
        Path(shared.folder) / shard.path,
        shard.path,
        split=shard.split,
        folder=Path(shared.folder) / METRICS,
        context=recipe.context,
        sources=shared.inputs,
        planned=_planned(shared, shard, collect),
    )
    measured.counts["n_rows_planned"] = len(shard.sizes)
    return ShardReport(
        path=shard.path,
        split=shard.split,
        rows=len(shard.sizes),
        examples=len(shard.order),
        tokens=written.tokens,
        bytes=written.bytes,
        sha256=written.sha256,
        measured=measured,
        answers=counting.answers,
    )
