"""Parquet: one split per row group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stages import contract, files, late
from stages.files import content, file_version
from stages.readers import _tables, arrow


class _File:
    """An opened file. Texts that it has in dictionaries are read so: nothing is repeated before it
    is known how often.

    Attributes:
        meta: its ``pyarrow.parquet.FileMetaData``; ``plain``: its schema without dictionaries.

    Args:
        size: bytes of the file; ``groups``: the row groups that are read, None for all.

    Raises:
        ContainerError: they would take too much memory; see ``inflate.require_text``.
    """

    def __init__(self, source: Any, size: int, groups: Sequence[int] | None = None) -> None:
        import pyarrow.parquet as pq  # which brings the clients of three clouds with it

        file = pq.ParquetFile(source)
        self.meta, self.plain = file.metadata, file.schema_arrow
        groups = range(self.meta.num_row_groups) if groups is None else groups
        text, apart, texts = 0, {"": 1}, set()
        for group in map(self.meta.row_group, groups):
            for at in range(group.num_columns):
                chunk, width = group.column(at), self.meta.schema.column(at).length
                name, length = chunk.path_in_schema, chunk.total_uncompressed_size
                text += length + max(files.VALUE, width) * chunk.num_values
                if chunk.physical_type == "BYTE_ARRAY":
                    texts.add(name)
                    if not _KEPT.issuperset(chunk.encodings):
                        apart[name] = max(length, apart.get(name, 1))
        files.require_text(size, text)
        self._rows = min(_tables.BATCH_ROWS, max(_LEAST, _tables.HELD // max(apart.values())))
        kept = sorted(texts - {*apart})
        self._file = pq.ParquetFile(source, metadata=self.meta, read_dictionary=kept)

    def batches(self, groups: Sequence[int], rows: int = _tables.BATCH_ROWS) -> Any:
        """The rows of some groups, at most so many at a time."""
        return self._file.iter_batches(min(rows, self._rows), groups)


_LEAST = 256  # rows at a time
# The encodings that Arrow can read into a dictionary. In another, a text may repeat the one before.
_KEPT = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_FOOTER = 1 << 16  # bytes at the end of a file that Arrow reads first


def _starts(meta: Any) -> list[int] | None:
    """Where each row group starts, and where the last one ends; None where they are not one after
    the other."""
    starts, end = [], 0
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        places = [
            (min(filter(None, (c.dictionary_page_offset, c.data_page_offset)), default=0), c)
            for c in columns
        ]
        start = min((place for place, _ in places), default=end)
        if start < end:
            return None
        starts.append(start)
        end = max((place + c.total_compressed_size for place, c in places), default=end)
    return [*starts, end]


def _ranges(start: int, stop: int, tail: int, size: int) -> tuple[Any, ...]:
    """The bytes of a row group, and those at the end of the file that say what is in it: as
    ``FileVersion.range`` takes them."""
    return (min(start, tail), size) if stop >= tail else (start, stop, (tail, size))


class _Parquet(content.Whole):
    name = "parquet"
    suffixes = (".parquet",)

    def cut(self, version: file_version.FileVersion) -> list[contract.Split]:
        path = version.path
        with arrow.named(path, "is not Parquet"), version.open() as source:
            meta = _File(source, version.size).meta
        files.require_rows(path, meta.num_rows, version.size)
        starts = _starts(meta)
        if starts is None:  # not as anybody writes it: one split, which reads all of the file
            return [replace(content.whole(version, self.name), stop=meta.num_row_groups)]
        tail = max(min(starts[-1], version.size - _FOOTER), 0)
        places = itertools.pairwise([0, *starts[1:-1], version.size])
        return [
            contract.Split(
                path,
                start=group,
                stop=group + 1,
                sha256="",
                reader=self.name,
                piece=group,
                version=version.range(*_ranges(start, stop, tail, version.size)),
            )
            for group, (start, stop) in enumerate(places)
        ]

    def read(self, split: contract.Split) -> Iterator[contract.Lines]:
        version = content.version_of(split)
        with arrow.named(split.path), version.open() as source:
            groups = list(range(split.start, split.stop))
            file = _File(source, version.size, groups)
            count = sum(file.meta.row_group(group).num_rows for group in groups)
            share = count / max(file.meta.num_rows, 1)
            rows = _tables.records(file.batches(groups), version.size, share, file.plain)
            yield from files.counted(rows, split.path, version.size)

    def glimpse(self, source: content.Source, rows: int, salvage: bool = False) -> contract.Glimpse:
        path = content.path_of(source)

        def fetch(group: int, at: int, size: int) -> late.pa.RecordBatch:
            for batch in file.batches([group], max(size, 64)):
                if at < batch.num_rows:
                    return batch.slice(at, size)
                at -= batch.num_rows
            return batch.slice(0, 0)

        with arrow.named(path), content.bytes_of(source) as opened:
            size_of_file = content.size_of(source)
            file = _File(opened, size_of_file)
            meta = file.meta
            counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            files.require_rows(path, sum(counts), size_of_file)
            return _tables.of_table(counts, rows, fetch, size_of_file, enter=False)


READER = _Parquet()
