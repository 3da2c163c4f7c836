"""Parts and plan to shards: each shard is made, written, read back and judged on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from expectations.contract import EXAMPLE, Context
from expectations.suite import Finding, judge
from pipeline import stored
from pipeline.plan import part_of
from pipeline.recipe import Recipe
from pipeline.stored import BATCH_ROWS
from stages.columns import IDS, IGNORED, Ints, list_parts, make_list, offsets_of, whole
from stages.errors import SurroundingsError
from stages.fold import unfold
from stages.pack import pack
from stages.pad import pad
from stages.ragged import ragged


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
    unlabelled: bool
    columns: tuple[str, ...]
    findings: tuple[Finding, ...]
    first_row_ids: tuple[str, ...]


def row_ids(source: Source, part: pa.Table | pa.RecordBatch) -> list[str]:
    """Names of a part's examples: path, line and sequence."""
    lines = (part.column("line").to_numpy() + source.first_line + 1).tolist()
    sequences = part.column("sequence").to_pylist()
    return [
        f"{source.name}:{line}" if k < 0 else f"{source.name}:{line}#{k}"
        for line, k in zip(lines, sequences, strict=True)
    ]


class _Lists:
    """Picks lists of numbers out of several parts: one join of memory slices, no copy before."""

    def __init__(self) -> None:
        self._views: list[memoryview] = []
        self._starts: list[list[int]] = []
        self._type = pa.int32()

    def add(self, column: pa.ListArray) -> None:
        offsets, values = list_parts(column)
        self._type = values.type
        width = values.type.bit_width // 8
        _, data = values.buffers()
        view = memoryview(data or b"")[values.offset * width :]
        self._views.append(view)
        self._starts.append((offsets * width).tolist())

    def pick(self, parts: list[int], rows: list[int]) -> pa.ListArray:
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

    def _table(self, part: int) -> pa.Table:
        if part not in self._tables:
            path = self._shared.sources[part].path
            self._tables[part] = pa.ipc.open_file(pa.memory_map(path)).read_all()
        return self._tables[part]

    def _row_ids(self, part: int) -> list[str]:
        if part not in self._names:
            self._names[part] = row_ids(self._shared.sources[part], self._table(part))
        return self._names[part]

    def __call__(self, order: Ints) -> pa.Table:
        """The examples of these indices, in this order, with their row ids."""
        shared = self._shared
        parts = part_of(shared.starts, order)
        used, place = np.unique(parts, return_inverse=True)
        rows = (order - shared.starts[parts]).tolist()
        places = place.tolist()
        columns: dict[str, pa.Array] = {}
        for name in shared.recipe.task.stored:
            if name == "margin" and not shared.with_margin:
                continue
            pieces = [whole(self._table(part).column(name)) for part in used]
            if pieces[0].type == IDS:
                lists = _Lists()
                for piece in pieces:
                    lists.add(piece)
                columns[name] = lists.pick(places, rows)
            else:
                columns[name] = _take(pieces, place, np.array(rows, np.int64))
        names = [self._row_ids(part) for part in used]
        ids = [names[part][row] for part, row in zip(places, rows, strict=True)]
        columns["row_id"] = pa.array(ids, pa.string())
        return unfold(pa.table(columns))


def _take(pieces: list[pa.Array], place: Ints, rows: Ints) -> pa.Array:
    """The same for any type: take from all parts joined."""
    starts = offsets_of(np.array([len(piece) for piece in pieces], np.int64))
    return pa.concat_arrays(pieces).take(pa.array(starts[place] + rows))


def lay_out(table: pa.Table, layout: str, sizes: Ints, width: int, recipe: Recipe) -> pa.Table:
    """Training rows of a layout from examples in stored order."""
    if layout == "packed":
        return pack(table, sizes)
    if layout == "padded":
        model = recipe.model
        return pad(table, width, model.profile.padding_side, model.pad_id)
    return ragged(table)


def write(
    sink: stored.Sink,
    order: Ints,
    sizes: Ints,
    examples: Callable[[Ints], pa.Table],
    rows: Callable[[pa.Table, Ints], pa.Table],
) -> tuple[str, int]:
    """Write a shard, one record batch at a time.

    Args:
        order: the shard's examples; ``sizes``: how many of them each training row holds.
        examples: fetches examples by index; ``rows``: lays them out.

    Returns:
        The file's sha256, and the number of its tokens without padding.
    """
    bounds = offsets_of(sizes)
    tokens = 0
    with sink:
        for start in range(0, len(sizes), BATCH_ROWS):
            stop = min(start + BATCH_ROWS, len(sizes))
            block = examples(order[bounds[start] : bounds[stop]])
            tokens += _stored(block)[1]
            sink.write(rows(block, sizes[start:stop]))
    return sink.sha256(), tokens


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
    folder = Path(shared.folder)
    projection = recipe.projection
    collect = Collector(shared)
    try:
        sha256, tokens = write(
            stored.Sink(folder, shard.path, projection),
            shard.order,
            shard.sizes,
            collect,
            lambda table, sizes: lay_out(table, layout, sizes, shared.width, recipe),
        )
        written = stored.read(folder, shard.path, projection)
    except (pa.ArrowInvalid, OSError) as error:
        raise SurroundingsError(
            f"Shard {shard.path} cannot be written: {error}.", "Make room on the disk."
        ) from error
    context = Context(recipe.config.task, layout, recipe.config.longest_example, recipe.model)
    findings = judge(written, context)
    trained, all_tokens = _stored(written)
    return ShardReport(
        shard.path,
        shard.split,
        written.num_rows,
        len(shard.order),
        tokens,
        trained,
        all_tokens - tokens,
        (folder / shard.path).stat().st_size,
        sha256,
        _soft(written),
        _unlabelled(written),
        tuple(written.schema.names),
        tuple(findings),
        _named(written, findings),
    )


def _named(table: pa.Table, findings: list[Finding]) -> tuple[str, ...]:
    """Row ids of the first row that breaks each law."""
    names = table.column("row_ids" if "row_ids" in table.schema.names else "row_id").to_pylist()
    examples = [i for row in names for i in (row if isinstance(row, list) else [row])]
    found = []
    for finding in findings:
        listed = examples if finding.level == EXAMPLE else [str(row) for row in names]
        found += [listed[i] for i in finding.rows[:1] if i < len(listed)]
    return tuple(found)


def _unlabelled(table: pa.Table) -> bool:
    if "step_labels" not in table.schema.names:
        return False
    return any(chunk.flatten().null_count for chunk in table.column("step_labels").chunks)


def _soft(table: pa.Table) -> bool:
    if "step_labels" not in table.schema.names:
        return False
    values = pa.chunked_array(
        [chunk.flatten() for chunk in table.column("step_labels").chunks], pa.float32()
    )
    found = values.drop_null().to_numpy()
    return bool(((found != 0) & (found != 1)).any())
