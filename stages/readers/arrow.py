"""Arrow IPC, file or stream; also the shards of a ``save_to_disk`` folder."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from stages.contract import Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers import _bytes, _tables


def _batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as source:
        magic = source.read(6)
        source.seek(0)
        if magic == b"ARROW1":
            file = pa.ipc.open_file(source)
            yield from (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            yield from pa.ipc.open_stream(source)


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
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, SurroundingsError):
                raise
            raise ContainerError(f"{split.path} is damaged: {error}.", "Fetch it again.") from error


READER = _Arrow()
