"""Arrow IPC, file or stream; also the shards of a ``save_to_disk`` folder.

What the next batch of a stream is to become is read before it is decoded: a compressed buffer
begins with its own length, which ``pyarrow`` allocates and shows nobody. So the headers are read
here. They are FlatBuffers: a table lies at a place, and its fields have numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

from stages import contract
from stages.errors import ContainerError, SurroundingsError, UsageError
from stages.files import content, require_rows, require_text
from stages.files.file_version import FileVersion
from stages.late import pa
from stages.readers import _tables


def _batches(source: Any, path: str, size: int) -> Iterator[pa.RecordBatch]:
    """The batches of a file or a stream of so many bytes. None is decoded before it is known what
    it will be; raises what ``bounds`` does."""
    listed = pa.ipc.open_file(source).num_record_batches if source.read(6) == b"ARROW1" else None
    source.seek(0 if listed is None else 8)  # a file is a stream between two marks
    stream = pa.ipc.open_stream(source)
    batches = rows = 0
    require_text(size, text := _next_bytes(source))
    for batch in stream:
        batches, rows = batches + 1, rows + batch.num_rows
        require_rows(path, rows, size)
        yield batch
        require_text(size, text := text + _next_bytes(source))
    if listed not in (None, batches):
        raise ContainerError(f"It has {batches} batches, but lists {listed}.", "Fetch it again.")


@contextlib.contextmanager
def named(path: str, trouble: str = "is damaged") -> Iterator[None]:
    """What goes wrong with a table that is read here is told with its path.

    Args:
        trouble: what is wrong with a file that Arrow cannot read.

    Raises:
        ContainerError: it cannot be read.
        SurroundingsError: its bytes cannot.
    """
    try:
        yield
    except SurroundingsError:
        raise
    except ContainerError as error:
        if error.what.startswith(path):
            raise
        raise ContainerError(f"{path}: {error.what}", error.remedy) from error
    except (pa.ArrowException, OSError) as error:
        what = " ".join(str(error).split())
        raise ContainerError(f"{path} {trouble}: {what}.", "Fetch it again.") from error


_ENOUGH = 4 << 20  # bytes of rows from which a sample is taken


class Arrow(content.Whole):
    """Reads files whose batches follow one another, and streams."""

    name = "arrow"
    suffixes: tuple[str, ...] = (".arrow",)

    def read(self, split: contract.Split) -> Iterator[contract.Lines]:
        version = content.version_of(split)
        try:
            # No memory map: if another process truncates a mapped file, reading it kills this one.
            with named(content.name_in_messages(split)), version.open() as source:
                yield from _tables.records(_batches(source, split.path, version.size), version.size)
        except ContainerError as error:
            if not split.salvage:
                raise
            yield contract.Lines([], 0, error.what)

    def glimpse(self, source: content.Source, rows: int, salvage: bool = False) -> contract.Glimpse:
        if not isinstance(source, str):
            return self._first(source, rows, salvage)
        path, size = source, os.path.getsize(source)
        with named(path):
            with pa.memory_map(path) as mapped:  # reads the headers only
                parts = list(_batches(mapped, path, size))
            counts = [batch.num_rows for batch in parts]
            return _tables.of_table(counts, rows, lambda n, at, few: parts[n].slice(at, few), size)

    def _first(self, version: FileVersion, rows: int, salvage: bool) -> contract.Glimpse:
        """A sample from the first megabytes of a version, which is read from its start."""
        records: list[contract.Record] = []
        size = 0
        for lines in self.read(replace(content.whole(version, self.name), salvage=salvage)):
            records += lines.records
            size += sum(len(record.raw) for record in lines.records)
            if size >= _ENOUGH:
                about = round(len(records) * version.size / size)
                sample = _tables.spread(records, rows)
                return contract.Glimpse(sample, "the first megabytes", about, exact=False)
        return _tables.of(records, rows)


READER = Arrow()


_BATCH = "record batch"


def _at(data: Any, place: int, kind: str) -> int:
    value: int = struct.unpack_from(f"<{kind}", data, place)[0]
    return value


def _leads(data: Any, table: int, number: int) -> int:
    """Where a field of a table leads to; 0 where the table does not have it."""
    fields, at = table - _at(data, table, "i"), 4 + 2 * number
    offset = _at(data, fields + at, "H") if at < _at(data, fields, "H") else 0
    return table + offset + _at(data, table + offset, "I") if offset else 0


def _decoded(message: Any) -> int:
    """Bytes of a message's buffers when they are not compressed any more."""
    data, body = message.metadata, message.body
    table = _leads(data, _at(data, 0, "I"), 2)
    if message.type != _BATCH:  # the batch of a dictionary
        table = _leads(data, table, 1)
    buffers, total = _leads(data, table, 2), 0
    packed = _leads(data, table, 3)
    for number in range(_at(data, buffers, "I") if buffers else 0):
        start, length = struct.unpack_from("<qq", data, buffers + 4 + 16 * number)
        total += max(length, _at(body, start, "q")) if packed and length else length
    return total


def _next_bytes(file: IO[bytes]) -> int:
    """Bytes of the next batch, and of the dictionaries before it, once they are decoded. The file
    stays where it is.

    Raises:
        ArrowException: there is no Arrow stream.
    """
    begin, total = file.tell(), 0
    try:
        while True:
            message = pa.ipc.read_message(file)
            if message.type in (_BATCH, "dictionary"):
                total += _decoded(message)
            if message.type == _BATCH:
                return total
    except EOFError:
        return total
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid("the header of a batch is broken") from error
    finally:
        file.seek(begin)


# A folder of ``datasets.save_to_disk``: its shards, in the order that it lists.


STATE = "state.json"
SPLITS = "dataset_dict.json"


def _described(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            description: dict[str, Any] = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ContainerError(f"{path} is damaged: {error}.", "Save the dataset again.") from error
    return description


def _shards(folder: str) -> list[str]:
    try:
        listed = [entry["filename"] for entry in _described(f"{folder}/{STATE}")["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ContainerError(
            f"{folder}/{STATE} lists no shards.", "Save the dataset again."
        ) from error
    paths = [os.path.join(folder, os.path.basename(name)) for name in listed]
    missing = next((path for path in paths if not os.path.isfile(path)), None)
    if missing is not None:
        raise ContainerError(
            f"{missing} is missing; {folder}/{STATE} lists it.", "Copy the folder again."
        )
    return paths


def files(folder: str) -> list[str] | None:
    """The shards of a saved dataset; None when the folder is none.

    Files that the dataset's own list does not name are left-overs of an earlier one.

    Raises:
        UsageError: it has several splits; one must be named.
        ContainerError: its description is damaged, or a shard is missing.
    """
    if os.path.isfile(os.path.join(folder, SPLITS)):
        splits = _described(os.path.join(folder, SPLITS)).get("splits") or []
        if len(splits) > 1:
            ways = " or ".join(os.path.join(folder, str(name)) for name in splits)
            raise UsageError(f"{folder} holds the splits {', '.join(splits)}.", f"Name one: {ways}")
        return [path for name in splits for path in _shards(os.path.join(folder, str(name)))]
    is_one = all(os.path.isfile(os.path.join(folder, n)) for n in (STATE, "dataset_info.json"))
    return _shards(folder) if is_one else None


class _Saved(Arrow):
    """A folder of ``datasets.save_to_disk``: its shards, in the order that it lists.

    Reads one shard; ``files`` says which ones a folder has.
    """

    name = "hf"
    suffixes = ()


HF = _Saved()
