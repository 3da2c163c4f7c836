"""One JSON object a line, plain, gzip or zstandard.

Lines end at ``\\n`` and nowhere else (a raw U+2028 inside a string is text); ``\\r\\n`` and a last
line without an end are fine; blank lines are no rows; a byte-order mark at the start is skipped.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections.abc import Iterator
from typing import IO

from stages import strict_json
from stages.contract import Glimpse, Lines, Record, Split
from stages.errors import RowError
from stages.readers import _bytes, _glimpse, _shape, _values

SPLIT_BYTES = 16 << 20  # part of what a part's bytes are; a constant, never f(workers)
BATCH_BYTES = 4 << 20
BATCH_ROWS = 1024
MAX_LINE = 64 << 20
_BOM = _shape.BOM


def _record(line: int, offset: int, raw: bytes) -> Record:
    if len(raw) > MAX_LINE:
        detail = f"{len(raw)} bytes in one line; the limit is {MAX_LINE}"
        return Record(line, offset, raw[:4096], None, ("line_too_long", detail))
    try:
        return Record(line, offset, raw, strict_json.parse(raw))
    except RowError as error:
        return Record(line, offset, raw, None, (error.code, error.detail))


def _read_line(file: IO[bytes]) -> tuple[bytes, int]:
    """One line and its length; of one beyond the limit only the beginning is kept."""
    line = file.readline(MAX_LINE + 2)
    length = len(line)
    if length > MAX_LINE + 1 and not line.endswith(b"\n"):
        while rest := file.readline(_bytes.CHUNK):
            length += len(rest)
            if rest.endswith(b"\n"):
                break
    return line, length


def _too_long(line: int, offset: int, body: bytes, length: int) -> Record:
    detail = f"{length} bytes in one line; the limit is {MAX_LINE}"
    return Record(line, offset, body[:4096], None, ("line_too_long", detail))


def records(file: IO[bytes], at_start: bool) -> Iterator[Lines]:
    """Rows of a binary stream, in batches.

    Args:
        at_start: the stream begins where its file does, where a byte-order mark may stand.
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
        if size >= BATCH_BYTES or len(batch) >= BATCH_ROWS:
            yield Lines(batch, number - first)
            batch, first, size = [], number, 0
    if number > first:
        yield Lines(batch, number - first)


def glimpse_values(path: str, rows: int) -> Glimpse:
    """A sample of a file that holds values, not lines."""
    return _glimpse.first_rows(path, functools.partial(_values.records, path=path), rows)


class _Jsonl:
    name = "jsonl"
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst")

    def splits(self, path: str) -> list[Split]:
        if not _shape.is_lines(path, unless_told=True, limit=MAX_LINE):
            return [Split(path, 0, 0, _bytes.sha256_of(path), "json")]
        return self.line_splits(path)

    def line_splits(self, path: str) -> list[Split]:
        """The pieces of a file that is known to hold lines."""
        size = os.path.getsize(path)
        if _bytes.compression(path):
            return [Split(path, 0, size, _bytes.sha256_of(path), self.name)]
        splits = []
        with open(path, "rb") as file:
            start = 0
            while start < size:
                file.seek(min(start + SPLIT_BYTES, size))
                while (rest := file.readline(_bytes.CHUNK)) and not rest.endswith(b"\n"):
                    pass
                stop = file.tell()
                sha256 = _bytes.sha256_of(path, start, stop)
                splits.append(Split(path, start, stop, sha256, self.name, int(start > 0)))
                start = stop
        return splits

    def read(self, split: Split) -> Iterator[Lines]:
        if _bytes.compression(split.path):
            if _bytes.sha256_of(split.path) != split.sha256:
                raise _bytes.changed(split.path)
            with _bytes.opened(split.path, split.salvage) as stream:
                yield from records(stream, at_start=True)
                if damage := _bytes.damage_of(stream):
                    yield Lines([], 0, damage)
            return
        at_start = split.start == 0
        if split.stop - split.start > 2 * SPLIT_BYTES:  # a monstrous line: never held whole
            with _bytes.Range(split.path, split.start, split.stop) as piece:
                yield from records(io.BufferedReader(piece, _bytes.CHUNK), at_start)
                if piece.sha256 != split.sha256:
                    raise _bytes.changed(split.path)
            return
        with open(split.path, "rb") as file:
            file.seek(split.start)
            content = file.read(split.stop - split.start)
        if hashlib.sha256(content).hexdigest() != split.sha256:
            raise _bytes.changed(split.path)
        yield from records(io.BytesIO(content), at_start)

    def glimpse(self, path: str, rows: int) -> Glimpse:
        if not _shape.is_lines(path, unless_told=True, limit=MAX_LINE):
            return glimpse_values(path, rows)
        if _bytes.compression(path):
            return _glimpse.first_rows(path, records, rows)
        return _glimpse.windows(path, rows, records, MAX_LINE)


READER = _Jsonl()
