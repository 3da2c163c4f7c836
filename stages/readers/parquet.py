"""Parquet: one split per row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stages.contract import Glimpse, Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.files import bounds, content, cutting
from stages.files.content import Source
from stages.files.file_version import FileVersion
from stages.readers import _glimpse, _tables
from stages.readers.arrow import damaged


def _opened(source: Any) -> Any:
    """A ``pyarrow.parquet.ParquetFile``, which brings the clients of three clouds with it."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source)


class _Parquet:
    name = "parquet"
    suffixes = (".parquet",)

    def splits(self, path: str) -> list[Split]:
        return cutting.hashed(self, path)

    def cut(self, version: FileVersion) -> list[Split]:
        path = version.path
        try:
            with version.open() as source:
                meta = _opened(source).metadata
        except SurroundingsError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise ContainerError(f"{path} is not Parquet: {error}.", "Fetch it again.") from error
        bounds.require_rows(path, meta.num_rows, version.size)
        return [
            Split(
                path,
                start=group,
                stop=group + 1,
                sha256="",
                reader=self.name,
                piece=group,
                version=version,
            )
            for group in range(meta.num_row_groups)
        ]

    def read(self, split: Split) -> Iterator[Lines]:
        version = content.version_of(split)
        try:
            with version.open() as source:
                batches = _opened(source).iter_batches(
                    _tables.BATCH_ROWS, list(range(split.start, split.stop))
                )
                rows = _tables.records(batches)
                yield from bounds.counted(rows, split.path, version.size)
        except SurroundingsError:
            raise
        except (pa.ArrowException, ContainerError, OSError) as error:
            raise damaged(split.path, error) from error

    def glimpse(self, source: Source, rows: int, salvage: bool = False) -> Glimpse:
        path = content.path_of(source)

        def fetch(group: int, at: int, size: int) -> pa.RecordBatch:
            for batch in file.iter_batches(max(size, 64), [group]):
                if at < batch.num_rows:
                    return batch.slice(at, size)
                at -= batch.num_rows
            return batch.slice(0, 0)

        try:
            with content.bytes_of(source) as opened:
                file = _opened(opened)
                meta = file.metadata
                counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
                bounds.require_rows(path, sum(counts), content.size_of(source))
                return _glimpse.of_table(counts, rows, fetch, enter=False)
        except SurroundingsError:
            raise
        except (pa.ArrowException, ContainerError, OSError) as error:
            raise damaged(path, error) from error


READER = _Parquet()
