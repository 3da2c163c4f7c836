"""One JSON object per line, plain, gzip or zstandard.

Lines end at ``\\n`` and nowhere else (a raw U+2028 inside a string is text); ``\\r\\n`` and a last
line without an end are fine; blank lines are no rows; a byte-order mark at the start is skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from stages.contract import Glimpse, Lines, Record, Split
from stages.errors import RowError
from stages.files import bounds, content, file_version, strict_json
from stages.files.content import Source
from stages.files.file_version import FileVersion
from stages.readers import _glimpse, _shape, _values

SPLIT_BYTES = 16 << 20  # a constant: parts must not depend on the number of workers
BATCH_BYTES = 4 << 20
BATCH_ROWS = 8192
BATCH_LINES = 1 << 16  # blank ones included
MAX_LINE = 64 << 20
_BOM = _shape.BOM


def _record(line: int, offset: int, raw: bytes) -> Record:
    if len(raw) > MAX_LINE:
        detail = f"{len(raw)} bytes in one line; the limit is {MAX_LINE}"
        return Record(line, offset, raw[:4096], data=None, error=("line_too_long", detail))
    try:
        return Record(line, offset, raw, strict_json.parse(raw))
    except RowError as error:
        return Record(line, offset, raw, data=None, error=(error.code, error.detail))


def _read_line(file: IO[bytes]) -> tuple[bytes, int]:
    """One line and its length; of a line beyond the limit only the beginning is kept."""
    line = file.readline(MAX_LINE + 2)
    length = len(line)
    if length > MAX_LINE + 1 and not line.endswith(b"\n"):
        while rest := file.readline(content.CHUNK):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
    return line, length


def _too_long(line: int, offset: int, body: bytes, length: int) -> Record:
    detail = f"{length} bytes in one line; the limit is {MAX_LINE}"
    return Record(line, offset, body[:4096], data=None, error=("line_too_long", detail))


def records(file: IO[bytes], at_start: bool) -> Iterator[Lines]:
    """Rows of a binary stream, in batches.

    Args:
        at_start: the stream begins at the start of its file, where a byte-order mark may be.
    """
    batch: list[Record] = []
    number = first = size = 0
    offset = 0
    while (line := _read_line(file))[1]:
        body, start = line[0], offset
        offset += line[1]
        if at_start and start == 0 and body.startswith(_BOM):
            body, start = body[len(_BOM) :], len(_BOM)
        if line[1] > MAX_LINE + 2:
            batch.append(_too_long(number, start, body, line[1]))
        else:
            body = body.removesuffix(b"\n").removesuffix(b"\r")
            if body.strip():
                batch.append(_record(number, start, body))
        size += len(body)
        number += 1
        if size >= BATCH_BYTES or len(batch) >= BATCH_ROWS or number - first >= BATCH_LINES:
            yield Lines(batch, number - first)
            batch, first, size = [], number, 0
    if number > first:
        yield Lines(batch, number - first)


def glimpse_values(source: Source, rows: int, salvage: bool) -> Glimpse:
    """A sample of a file that holds values, not lines."""
    values = functools.partial(_values.records, path=content.path_of(source))
    return _glimpse.first_rows(source, values, rows=rows, salvage=salvage)


class _Jsonl:
    name = "jsonl"
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst")

    def splits(self, path: str) -> list[Split]:
        version = file_version.take(path, SPLIT_BYTES)
        if not _shape.is_lines(version, default=True, limit=MAX_LINE):
            sha256 = version.sha256
            return [Split(path, start=0, stop=0, sha256=sha256, reader="json", version=version)]
        return self.line_splits(version)

    def line_splits(self, version: FileVersion) -> list[Split]:
        """The pieces of a file that is known to hold lines."""
        path, size = version.path, version.size
        if content.compression(version):
            split = Split(path, start=0, stop=size, sha256=version.sha256, reader=self.name)
            return [replace(split, version=version)]
        splits = []
        for run in version.lines():
            start, stop = run.pieces[0].start, run.pieces[-1].stop
            split = Split(
                path,
                start=start,
                stop=stop,
                sha256=run.range_sha256,
                reader=self.name,
                piece=int(start > 0),
            )
            splits.append(replace(split, version=run, lines=run.line_count))
        return splits

    def read(self, split: Split) -> Iterator[Lines]:
        version = content.version_of(split)
        with content.opened(version, split.salvage) as stream:
            batches = records(stream, at_start=split.start == 0)
            yield from bounds.counted(batches, split.path, version.size)
            if damage := content.damage_of(stream):
                yield Lines([], 0, damage)

    def glimpse(self, source: Source, rows: int, salvage: bool = False) -> Glimpse:
        if not _shape.is_lines(source, default=True, limit=MAX_LINE):
            return glimpse_values(source, rows, salvage)
        if content.compression(source):
            return _glimpse.first_rows(source, records, rows=rows, salvage=salvage)
        return _glimpse.windows(source, rows=rows, records=records, longest=MAX_LINE)


READER = _Jsonl()
