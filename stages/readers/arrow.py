"""Arrow IPC, file or stream; also the shards of a ``save_to_disk`` folder."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from stages.contract import Glimpse, Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers import _bytes, _glimpse, _tables


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as source:
        magic = source.read(6)
        source.seek(0)
        if magic == b"ARROW1":
            file = pa.ipc.open_file(source)
            yield from (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            yield from pa.ipc.open_stream(source)


def damaged(path: str, error: Exception) -> ContainerError:
    """The error for a table that cannot be read."""
    if isinstance(error, ContainerError):  # it does not know its file
        return ContainerError(f"{path}: {error.what}", error.remedy)
    what = " ".join(str(error).split())
    return ContainerError(f"{path} is damaged: {what}.", "Fetch it again.")


class _Arrow:
    name = "arrow"
    suffixes = (".arrow",)

    def splits(self, path: str) -> list[Split]:
        return [Split(path, 0, 0, _bytes.sha256_of(path), self.name)]

    def read(self, split: Split) -> Iterator[Lines]:
        if _bytes.sha256_of(split.path) != split.sha256:
            raise _bytes.changed(split.path)
        try:
            yield from _tables.records(_batches(split.path))
        except (pa.ArrowException, ContainerError, OSError) as error:
            if isinstance(error, SurroundingsError):
                raise
            if not split.salvage:
                raise damaged(split.path, error) from error
            yield Lines([], 0, damaged(_bytes.told(split), error).what)

    def glimpse(self, path: str, rows: int) -> Glimpse:
        try:
            batches = list(_batches(path))  # a memory map: only what stands before the values
            counts = [batch.num_rows for batch in batches]
            return _glimpse.of_table(counts, rows, lambda n, at, size: batches[n].slice(at, size))
        except (pa.ArrowException, ContainerError, OSError) as error:
            raise damaged(path, error) from error


READER = _Arrow()
