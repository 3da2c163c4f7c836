"""Parquet: one split per row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from stages.contract import Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers import _bytes, _tables


class _Parquet:
    name = "parquet"
    suffixes = (".parquet",)

    def splits(self, path: str) -> list[Split]:
        try:
            groups = pq.ParquetFile(path).num_row_groups
        except pa.ArrowInvalid as error:
            raise ContainerError(f"{path} is not Parquet: {error}.", "Fetch it again.") from error
        sha256 = _bytes.sha256_of(path)
        return [Split(path, group, group + 1, sha256, self.name, group) for group in range(groups)]

    def read(self, split: Split) -> Iterator[Lines]:
        try:
            file = pq.ParquetFile(split.path)
            if _bytes.sha256_of(split.path) != split.sha256:
                raise _bytes.changed(split.path)
            groups = list(range(split.start, split.stop))
            yield from _tables.records(file.iter_batches(row_groups=groups))
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, SurroundingsError):
                raise
            raise ContainerError(f"{split.path} is damaged: {error}.", "Fetch it again.") from error


READER = _Parquet()
