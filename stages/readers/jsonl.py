"""One JSON object per line, plain, gzip or zstandard.

Lines end at ``\\n`` and nowhere else (a raw U+2028 inside a string is text); ``\\r\\n`` and a last
line without an end are fine; blank lines are no rows; a byte-order mark at the start is skipped.
"""

from __future__ import annotations

import functools
import itertools
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


def _too_long(line: int, offset: int, body: bytes, length: int) -> Record:
    detail = f"{length} bytes in one line; the limit is {MAX_LINE}"
    return Record(line, offset, body[:4096], data=None, error=("line_too_long", detail))


def _plain(lines: list[bytes], joined: bytes, first: int, offset: int) -> list[Record] | None:
    """The records of lines of which none is odd; None where one is.

    Args:
        first: number of the first line; ``offset``: of its first byte.
    """
    if b"\r" in joined or not all(lines) or not all(map(bytes.strip, lines)):
        return None
    rows = strict_json.parse_all(lines, joined)
    if rows is None or max(map(len, lines)) > MAX_LINE:
        return None
    sizes = map(len, lines)
    starts = itertools.accumulate((size + 1 for size in sizes), initial=offset)
    return list(map(Record, itertools.count(first), starts, lines, rows))


def _one_by_one(lines: list[bytes], first: int, offset: int, at_start: bool) -> list[Record]:
    """The records of lines, each parsed by itself; blank lines have none."""
    made: list[Record] = []
    for number, line in enumerate(lines, first):
        start, body = offset, line
        offset += len(line) + 1
        if at_start and start == 0 and body.startswith(_BOM):
            start, body = len(_BOM), body[len(_BOM) :]
        body = body.removesuffix(b"\r")
        if body.strip():
            made.append(_record(number, start, body))
    return made


def _blocks(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Whole lines in blocks, the last without its end; or the beginning of one line that is too
    long to be kept, and its number of bytes (else 0)."""
    longest = MAX_LINE + len(_BOM) + 1  # with a mark and a carriage return, which do not count
    rest, length = b"", 0  # of the line that the next block goes on with
    while block := file.read(BATCH_BYTES):
        cut = block.rfind(b"\n")
        if cut < 0:
            rest += block if length <= longest else b""
            length += len(block)
            continue
        whole = block[:cut]
        if length > longest:
            end, separator, whole = whole.partition(b"\n")
            yield rest, length + len(end)
            if separator:
                yield whole, 0
        else:
            yield rest + whole, 0
        rest = block[cut + 1 :]
        length = len(rest)
    if length:
        yield rest, length if length > longest else 0


def records(file: IO[bytes], at_start: bool) -> Iterator[Lines]:
    """Rows of a binary stream, in batches.

    Args:
        at_start: the stream begins at the start of its file, where a byte-order mark may be.
    """
    number = offset = 0
    for block, too_long in _blocks(file):
        if too_long:
            mark = len(_BOM) if at_start and not offset and block.startswith(_BOM) else 0
            yield Lines([_too_long(number, offset + mark, block[mark:], too_long - mark)], 1)
            number, offset = number + 1, offset + too_long + 1
            continue
        lines = block.split(b"\n")
        for start in range(0, len(lines), BATCH_ROWS):
            some = lines[start : start + BATCH_ROWS]
            joined = block if len(some) == len(lines) else b"\n".join(some)
            read = _plain(some, joined, number, offset)
            if read is None:
                read = _one_by_one(some, number, offset, at_start)
            yield Lines(read, len(some))
            number, offset = number + len(some), offset + len(joined) + 1


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
