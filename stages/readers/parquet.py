"""Parquet: one split per row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from stages.contract import Glimpse, Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers import _bytes, _glimpse, _tables
from stages.readers.arrow import damaged


class _Parquet:
    name = "parquet"
    suffixes = (".parquet",)

    def splits(self, path: str) -> list[Split]:
        try:
            groups = pq.ParquetFile(path).num_row_groups
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, PermissionError):
                raise
            raise ContainerError(f"{path} is not Parquet: {error}.", "Fetch it again.") from error
        sha256 = _bytes.sha256_of(path)
        return [Split(path, group, group + 1, sha256, self.name, group) for group in range(groups)]

    def read(self, split: Split) -> Iterator[Lines]:
        try:
            file = pq.ParquetFile(split.path)
            if _bytes.sha256_of(split.path) != split.sha256:
                raise _bytes.changed(split.path)
            groups = list(range(split.start, split.stop))
            yield from _tables.records(file.iter_batches(_tables.BATCH_ROWS, groups))
        except (pa.ArrowException, ContainerError, OSError) as error:
            if isinstance(error, SurroundingsError):
                raise
            raise damaged(split.path, error) from error

    def glimpse(self, path: str, rows: int) -> Glimpse:
        def fetch(group: int, at: int, size: int) -> pa.RecordBatch:
            for batch in file.iter_batches(max(size, 64), [group]):
                if at < batch.num_rows:
                    return batch.slice(at, size)
                at -= batch.num_rows
            return batch.slice(0, 0)

        try:
            file = pq.ParquetFile(path, memory_map=True)
            meta = file.metadata
            counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            return _glimpse.of_table(counts, rows, fetch, enter=False)
        except (pa.ArrowException, ContainerError, OSError) as error:
            raise damaged(path, error) from error


READER = _Parquet()
