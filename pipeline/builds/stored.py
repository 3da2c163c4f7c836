"""Reads and writes shard files, in our columns or in those of a trainer.

A trainer's shard ``train/data-0.arrow`` may lack columns that only we have (row ids, step
positions). They are stored in ``__lineage__/train/data-0.arrow``, in the same rows, and ``read``
joins both. A trainer that reads no Arrow has its files in ``jsonl/train`` or ``parquet/train``, and
``train`` has the same rows for ``datasets``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipeline.exports import Projection
from pipeline.manifest import manifest, records
from stages.files import file_hash
from stages.late import pa

BATCH_ROWS = 256  # rows per record batch: reading one row at random reads its batch
_ORDER = b"columns"  # of a lineage file's schema: our columns in their order


def path_of(split: str, index: int, count: int, container: str) -> str:
    """Where a trainer's shard is, relative to the build: it alone, if it is not Arrow, since some
    trainers read every file of a folder."""
    name = f"{split}/data-{index:05d}-of-{count:05d}.{container}"
    return name if container == "arrow" else f"{container}/{name}"


def arrow_of(path: str) -> str:
    """The file for ``datasets``, with the rows of a trainer's shard: itself, where it is Arrow."""
    if path.endswith(".arrow"):
        return path
    return f"{path.partition('/')[2].rpartition('.')[0]}.arrow"


def lineage_of(path: str) -> str:
    """The file for the columns that a trainer's shard lacks, relative to the build.

    ``load_dataset(DIR)`` skips folders whose names begin with two underscores, so it sees only the
    shards.
    """
    return f"__lineage__/{path.rpartition('.')[0]}.arrow"


def read_file(path: Path) -> pa.Table:
    """A file as it is: an Arrow IPC stream, memory-mapped, or Parquet or lines by its suffix."""
    if path.suffix == ".jsonl":
        with path.open("rb") as lines:
            return pa.Table.from_pylist([orjson.loads(line) for line in lines])
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq  # which most builds do not need

        return pq.read_table(path, memory_map=True)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


class _Lines:
    """Writes one JSON object a line; it has the interface of pyarrow's writers."""

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self._sink = sink

    def write_table(self, table: pa.Table) -> None:
        self._sink.write(b"".join(orjson.dumps(row) + b"\n" for row in table.to_pylist()))

    def close(self) -> None:
        pass


def _parquet(sink: Any, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema)


_WRITERS = {".parquet": _parquet, ".jsonl": _Lines}  # any other: pa.ipc.new_stream


class _File:
    """One file of record batches; it is opened with the first batch, whose schema it takes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sink: Any = None
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(str(self.path), "wb")
            open_writer = _WRITERS.get(self.path.suffix, pa.ipc.new_stream)
            self._writer = open_writer(self._sink, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._sink.close()


class Sink:
    """Writes a shard, batch by batch, in the columns that it is stored in."""

    def __init__(self, folder: Path, path: str, projection: Projection | None) -> None:
        self._projection = projection
        self._files = [_File(folder / one) for one in dict.fromkeys((path, arrow_of(path)))]
        self._lineage = _File(folder / lineage_of(path)) if projection is not None else None

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (*self._files, *([self._lineage] if self._lineage else [])):
            file.close()

    def write(self, table: pa.Table) -> None:
        """Append rows in our columns."""
        stored = table if self._projection is None else self._projection.forward(table)
        for file in self._files:
            file.write(stored)
        if self._projection is None or self._lineage is None:
            return
        rest = [name for name in table.schema.names if name not in self._projection.keeps]
        # The trainer's columns have lost the order of ours, so the lineage file keeps it.
        order = json.dumps(table.schema.names).encode()
        self._lineage.write(table.select(rest).replace_schema_metadata({_ORDER: order}))


def columns_of(folder: Path, path: str, projection: Projection | None) -> tuple[str, ...]:
    """The names of our columns of a shard, whatever columns it is stored in."""
    if projection is None:
        return tuple(read_file(folder / path).schema.names)
    return tuple(json.loads(read_file(folder / lineage_of(path)).schema.metadata[_ORDER]))


def _joined(stored: pa.Table, rest: pa.Table, theirs: Projection) -> Iterator[pa.Table]:
    """Batches in our columns, from those of the shard and of its lineage file."""
    order = json.loads(rest.schema.metadata[_ORDER])
    for start in range(0, len(rest), BATCH_ROWS):
        ours = theirs.back(stored.slice(start, BATCH_ROWS).combine_chunks())
        beside = rest.slice(start, BATCH_ROWS)
        columns = {name: (ours if name in theirs.keeps else beside).column(name) for name in order}
        yield pa.table(columns)


def read(folder: Path, path: str, projection: Projection | None) -> pa.Table:
    """A shard in our columns, whatever columns it is stored in."""
    table = read_file(folder / path)
    if projection is None:
        return table
    return pa.concat_tables(list(_joined(table, read_file(folder / lineage_of(path)), projection)))


# Compares the files of a build with the hashes in its manifest.


MISSING, HASH, UNKNOWN = "missing", "hash", "unknown"
_UNLISTED = {records.RUN, manifest.MANIFEST}  # no manifest names these
# What the hub has in every repository, and what its library leaves in a folder that it fills.
_OF_THE_HUB = (".gitattributes", ".cache/huggingface/")


class Difference(NamedTuple):
    """A file that differs from the manifest; ``code`` is ``missing``, ``hash`` or ``unknown``.

    Attributes:
        name: its path in the build.
    """

    name: str
    code: str
    detail: str


def links(folder: Path, files: Iterable[str]) -> list[str]:
    """Those of a build's files that are links, or lie behind one: others decide what they are."""
    steps = {name: (Path(name), *Path(name).parents[:-1]) for name in (*files, *_UNLISTED)}
    return [name for name, some in steps.items() if any((folder / s).is_symlink() for s in some)]


def differences(
    folder: Path, files: Mapping[str, str], sha256: Callable[[Path], str] = file_hash.sha256
) -> Iterator[Difference]:
    """Every file that is missing, changed, or not named.

    Args:
        files: sha256 by path, as a manifest has them.
        sha256: gives that of a file; by default every file is read.
    """
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    linked = links(folder, files)
    for name in sorted({*files, *linked}):
        if name in linked:
            yield Difference(name, MISSING, "a link is in its place")
        elif name not in present:
            yield Difference(name, MISSING, "the manifest lists it, but it does not exist")
        elif not (folder / name).is_file():
            yield Difference(name, HASH, "it is not a regular file")
        elif sha256(folder / name) != files[name]:
            yield Difference(name, HASH, f"its sha256 is not {files[name]}")
    for name in sorted(present - {*files} - _UNLISTED):
        if name.startswith(_OF_THE_HUB):
            continue
        yield Difference(name, UNKNOWN, "the manifest does not list it")


def hash_files(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    """sha256 of every file of a build, by path; ``known`` spares hashing shards twice."""
    hashes = dict(known)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in hashes and name not in _UNLISTED:
            hashes[name] = file_hash.sha256(path)
    return dict(sorted(hashes.items()))
