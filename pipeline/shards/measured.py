"""Reads a shard back from the disk and measures it, in the process that wrote it.

What is kept of it are sums and the rows of metrics that decide (``expectations.tallies``), and a
file beside the shard with five numbers for each example, for what must hold across shards. Whole
tables of metrics are written only where somebody's own suite is to judge them.

The one hash of a shard is computed here, over the mapped bytes that are then measured. So it
names neither what a writer meant to write nor what was there before or after, but the file whose
every token was compared with the parts. It comes first: if the file changes while it is measured,
the build that is published does not have the hash that its manifest gives.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from expectations import stored_rows, tallies, undo_layout
from expectations.contract import APART, EXAMPLE, ROW, Context, Values
from expectations.tallies import Checks, Tally
from pipeline.shards import mapped, storage, train_test
from stages.columns import Bools, Ints
from stages.errors import GateError, PipelineError
from stages.files import file_hash
from stages.tokens import layouts

METRICS = ".metrics"  # in the staging directory; removed before the build is published
_NAMES, _CONTENTS, _ASKED = "names", "contents", "asked"  # files of numbers
_NAMED = np.dtype((np.int64, len(stored_rows.IDENTITY)))
_FILES: dict[str, tuple[tuple[str, ...], np.dtype[Any]]] = {  # the columns of each, and their kind
    _NAMES: (stored_rows.IDENTITY[:3], _NAMED),
    _CONTENTS: (stored_rows.IDENTITY[3:], np.dtype((np.int64, 2))),
    _ASKED: ((_ASKED,), np.dtype((np.int64, 1))),
}
PIECE = 1 << 19  # examples whose names or contents are compared with each other at once, about
_HASHED = 1 << 23  # bytes
GROUP_TOKENS = 1 << 20  # measured at once
# Bytes of a kept part that have changed on the disk, while its size and times have not, end here.
OURS = (
    "Nothing was published. Build again with --verify, which reads everything that earlier builds "
    "left in the cache, in case the disk damaged it. If the same expectation breaks again, please "
    "report it with the recipe."
)
_NOT_OURS = (PipelineError, OSError, MemoryError)  # they say by themselves what is wrong


@dataclass(frozen=True, slots=True)
class Measured:
    """One shard, as it was read back.

    Attributes:
        counts: its row of the ``shards`` table, without the columns that need the whole build.
        tallies: what is kept of its tables of metrics; none where it does not open.
        soft_labels: some rating is neither 0 nor 1.
        sha256: of the bytes that were read; ``state``: of their file before.
        settled: a change after it was read gives the file another state.
    """

    path: str
    split: str
    counts: dict[str, int]
    tallies: dict[str, Tally]
    soft_labels: bool
    sha256: str
    state: file_hash.FileState
    settled: bool

    @property
    def rows(self) -> dict[str, int]:
        """How many rows of each table of metrics come from it."""
        return {table: one.rows for table, one in self.tallies.items()}


class Wanted(NamedTuple):
    """How shards are measured.

    Attributes:
        folder: where files of numbers go.
        tables: also write whole tables of metrics.
    """

    folder: Path
    context: Context
    sources: stored_rows.Sources
    tables: bool = False


def file_of(folder: Path, shard: str, name: str) -> Path:
    """Where some numbers of a shard are kept."""
    return folder / f"{shard.replace('/', '-')}.{name}"


def files_of(folder: Path, shard: str) -> dict[str, Path]:
    """All files of numbers of a shard, by name."""
    pattern = file_of(folder, shard, "*")
    start = pattern.name.removesuffix("*")
    return {path.name.removeprefix(start): path for path in sorted(folder.glob(pattern.name))}


def read_metrics(path: Path) -> pa.Table:
    """A table of a shard's metrics."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def metrics_file(folder: Path, shard: str, table: str) -> Path:
    """Where a table of a shard's metrics is kept."""
    return file_of(folder, shard, f"{table}.arrow")


def identities(folder: Path, shard: Measured) -> Ints:
    """``IDENTITY`` of each example of a shard, in no order: shape (5, examples)."""
    return _piece(folder, shard, _NAMES, _NAMED, (0, storage.BUCKETS)).T


def _piece(
    folder: Path, shard: Measured, name: str, kind: np.dtype[Any], buckets: tuple[int, int]
) -> Ints:
    """Numbers of a shard's examples: shape (examples, columns)."""
    if not shard.rows.get(EXAMPLE, 0):
        return np.zeros((0, *kind.shape), np.int64)
    path = file_of(folder, shard.path, name)
    found: Ints = storage.read_grouped(path, buckets[0], kind, storage.BUCKETS, buckets[1])
    return found


def pieces(folder: Path, shards: Sequence[Measured], name: str) -> Iterator[stored_rows.Piece]:
    """The examples of a build by ``names``, by ``contents`` or by what is ``asked``, in pieces of
    about ``PIECE``: so is the field of ``Dataset`` called."""
    columns, kind = _FILES[name]
    total = sum(shard.rows.get(EXAMPLE, 0) for shard in shards)
    count = min(storage.BUCKETS, max(1, -(-total // PIECE)))
    bounds = [storage.BUCKETS * number // count for number in range(count + 1)]
    for buckets in pairwise(bounds):
        made = {}
        for side in stored_rows.SIDES:
            own = [shard for shard in shards if shard.split == side]
            found = [_piece(folder, shard, name, kind, buckets) for shard in own]
            every = np.concatenate([np.zeros((0, *kind.shape), np.int64), *found])
            made[side] = dict(zip(columns, every.T, strict=False))
        yield made


def _sha256(file: mapped.Mapped) -> str:
    """The hash of a mapped file, of which little is held at a time."""
    content, digest = file.content, hashlib.sha256()
    for start in range(0, len(content), _HASHED):
        digest.update(content[start : start + _HASHED])
        file.forget()
    return digest.hexdigest()


def _open_table(content: memoryview) -> pa.Table | None:
    try:
        table = pa.ipc.open_stream(pa.py_buffer(content)).read_all()
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


Plan = Callable[[int, int], stored_rows.Planned]  # of the examples from .. to .. of a shard
_Group = Mapping[str, Values]  # tables of metrics, by name


def _in_groups(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces of about a million tokens, each column in one chunk."""
    batches = table.to_batches()
    tokens = sum(chunk.nbytes for chunk in batches) // 8
    each = max(1, GROUP_TOKENS * len(batches) // max(tokens, 1))
    for start in range(0, len(batches), each):
        yield pa.Table.from_batches(batches[start : start + each]).combine_chunks()


# A large shard is measured in groups of rows, to bound the memory that its metrics take.
def _groups(table: pa.Table, wanted: Wanted, plan: Plan | None) -> Iterator[_Group]:
    layout = layouts.load(wanted.context.layout)
    start = 0
    for group in _in_groups(table):
        stop = start + undo_layout.count(group, wanted.context)
        planned = plan and plan(start, stop)
        rows = stored_rows.StoredRows(
            group, wanted.context, sources=wanted.sources, planned=planned
        )
        found = {EXAMPLE: tallies.measured(rows, EXAMPLE)}
        if layout.packs or layout.pads:  # otherwise a training row is an example
            found[ROW] = tallies.measured(rows, ROW)
        yield found
        start = stop


class _Kept:
    """What is kept of the metrics of a shard's groups."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._checks: dict[str, Checks] = {}
        self._tallies: dict[str, list[Tally]] = {}
        self._identities: list[Ints] = []
        self._asked: list[Ints] = []
        self.ascents = self.neighbours = 0
        self._tables: dict[str, list[pa.Table]] = {}

    def add(self, group: _Group) -> None:
        for table, metrics in group.items():
            if table not in self._checks:
                self._checks[table] = tallies.checks_of(self._wanted.context, table)
            self._tallies.setdefault(table, []).append(tallies.tally(metrics, self._checks[table]))
            if self._wanted.tables:
                self._tables.setdefault(table, []).append(pa.table(dict(metrics)))
        own = np.stack([group[EXAMPLE][name] for name in stored_rows.IDENTITY])
        self._identities.append(own)
        behind = _behind(own[:3])
        self.neighbours += len(behind)
        self.ascents += int(np.count_nonzero(behind))
        if APART in self._wanted.context.traits:
            self._asked.append(group[EXAMPLE][_ASKED])

    def write(self, shard: str) -> dict[str, Tally]:
        """Write the files; the tallies of the whole shard."""
        folder = self._wanted.folder
        if self._identities:
            _write(folder, shard, np.concatenate(self._identities, axis=1))
        if self._asked:
            hashes = np.concatenate(self._asked)
            buckets = storage.bucket_of(hashes.view(np.uint64))
            path = file_of(folder, shard, _ASKED)
            storage.write_grouped(path, hashes, buckets, storage.BUCKETS)
        for table, frames in self._tables.items():
            path = metrics_file(folder, shard, table)
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, frames[0].schema) as out:
                for frame in frames:
                    out.write_table(frame)
        return {
            table: tallies.joined(found, self._checks[table])
            for table, found in self._tallies.items()
        }


def _behind(place: Ints) -> Bools:
    """Which examples but the first stand behind one that comes before them in the inputs.

    Args:
        place: source, line and sequence of each, in the order in which they are stored.
    """
    found: Bools = np.zeros(place[0, 1:].shape, bool)
    for before, behind in zip(place[::-1, :-1], place[::-1, 1:], strict=True):
        found = (before < behind) | ((before == behind) & found)
    return found


def _write(folder: Path, shard: str, identities: Ints) -> None:
    """Write the examples of a shard twice: grouped by name, and by content."""
    source, line = (row.astype(np.uint64) for row in identities[:2])
    by_name = storage.bucket_of(train_test.mixed(line ^ (source << np.uint64(40)), 0))
    by_content = storage.bucket_of(identities[3].view(np.uint64))
    records = np.ascontiguousarray(identities.T)
    names, contents = (file_of(folder, shard, name) for name in (_NAMES, _CONTENTS))
    storage.write_grouped(names, records, by_name, storage.BUCKETS)
    storage.write_grouped(contents, records[:, 3:], by_content, storage.BUCKETS)


def measure(path: Path, shard: str, split: str, wanted: Wanted, plan: Plan | None) -> Measured:
    """Read a shard back, hash it, and measure its rows.

    Args:
        path: the file; ``shard`` its name in the build.
        plan: what the shard must hold; None in a finished build.

    Raises:
        GateError: a metric cannot be computed, so the rows cannot be judged.
    """
    state = file_hash.of(path)
    file = mapped.Mapped(path)
    file.in_order()
    sha256 = _sha256(file)
    table = _open_table(file.content)
    found: dict[str, Tally] = {}
    soft = False
    kept = _Kept(wanted)
    try:
        counts = tallies.shard(stored_rows.ShardFile(path, table, wanted.context))
        # Without the columns there are no metrics; the invariant shards_open fails such a shard.
        if table is not None and not counts["n_columns_differ"]:
            for group in _groups(table, wanted, plan):
                kept.add(group)
                file.forget()
            found, soft = kept.write(shard), _soft(table)
            # n_tokens, or chosen_n_tokens and rejected_n_tokens: both sides of a pair are counted.
            sums = found[EXAMPLE].sums if found else {}
            counts |= {"n_neighbours": kept.neighbours, "n_ascents": kept.ascents}
            counts["n_examples"] = found[EXAMPLE].rows if found else 0
            counts["n_tokens"] = sum(n for name, n in sums.items() if name.endswith("n_tokens"))
    except _NOT_OURS:
        raise
    except Exception as error:  # somebody's metric may raise those of any library
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise GateError(f"{shard} cannot be checked: {what}.", OURS) from error
    return Measured(
        path=shard,
        split=split,
        counts=counts,
        tallies=found,
        soft_labels=soft,
        sha256=sha256,
        state=state,
        settled=state.settled(),
    )
