"""One JSON object per line, plain, gzip or zstandard.

Lines end at ``\\n`` and nowhere else (a raw U+2028 inside a string is text); ``\\r\\n`` and a last
line without an end are fine; blank lines are no rows; a byte-order mark at the start is skipped.
A file is cut at the first line end that is so many bytes after the last cut: the cuts depend on the
file's bytes alone, and only the bytes around them are read to find them.
"""

import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

import orjson

from stages import contract, files
from stages.files import content, file_version, frames, line_block
from stages.readers import _tables, _values

SPLIT_BYTES = 16 << 20  # a constant: parts must not depend on the number of workers
BATCH_BYTES = 4 << 20
BATCH_ROWS = 8192
MAX_LINE = 64 << 20
_KEY_WITHIN = 1 << 20  # bytes in which the only key of a file is looked for
_BOM = _values.BOM
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst")


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


def records(file: IO[bytes], at_start: bool) -> Iterator[contract.Lines]:
    """Rows of a binary stream, in batches.

    Args:
        at_start: the stream begins at the start of its file, where a byte-order mark may be.
    """
    number = offset = 0
    for body, length in _blocks(file):
        mark = len(_BOM) if at_start and not offset and body.startswith(_BOM) else 0
        body, offset = body[mark:], offset + mark
        if length:
            first = line_block.too_long(number, offset, body, MAX_LINE, length - mark)
            yield contract.Lines([first], 1, size=length + 1)
            number, offset = number + 1, offset + length - mark + 1
            continue
        lines = body.split(b"\n")
        for at in range(0, len(lines), BATCH_ROWS):
            some = lines[at : at + BATCH_ROWS]
            size = sum(map(len, some)) + len(some)
            found = line_block.records(some, number, offset, MAX_LINE)
            yield contract.Lines(found, len(some), size=size + (0 if at else mark))
            number, offset = number + len(some), offset + size


def _is_a(kind: type, line: bytes) -> bool:
    """Whether a line is a whole value of a kind, so that what follows it is another row."""
    try:
        return type(orjson.loads(line)) is kind
    except orjson.JSONDecodeError:
        return False


_is_object = functools.partial(_is_a, dict)


def _spans_lines(head: bytes) -> bool:
    """Whether the first value is complete and spans lines, or a lone carriage return follows it.

    Lines that end in a lone carriage return are not lines here, so they are read as values.
    """
    text = head.decode("utf-8", "ignore")
    try:
        stop = json.JSONDecoder(parse_int=str).raw_decode(text)[1]
    except (ValueError, RecursionError):
        return False
    lone = text[stop : stop + 1] == "\r" and text[stop + 1 : stop + 2] != "\n"
    return "\n" in text[:stop] or lone


def _is_lines(source: content.Source, default: bool, limit: int) -> bool:
    """Whether a file has one value per line; otherwise it is an array, or values one after another.

    Args:
        default: the answer by the file's name, where its beginning does not show it.
        limit: bytes of the longest line.

    Raises:
        ContainerError: it is binary, or not UTF-8.
    """
    with content.opened(source, salvage=True) as file:  # a damage is reported when rows are read
        head = file.read(_values.HEAD)
        if b"\n" not in head and not head.removeprefix(_BOM).lstrip().startswith(b"["):
            head += file.readline(limit)
        more = bool(file.read(1))
    _values.refuse_other_encodings(content.path_of(source), head)
    # With rows of JSON before or after it, a zero byte damages one row only.
    if b"\0" in head and not any(map(_is_object, head.removeprefix(_BOM).split(b"\n"))):
        raise _values.binary(content.path_of(source), head.index(0), "JSON")
    body = head.removeprefix(_BOM).lstrip()
    lines = [line for line in body.split(b"\n")[: -1 if more else None] if line.strip()]
    if body.startswith(b"["):
        return len(lines) > 1 and _is_a(list, lines[0])
    one = body.startswith(b"{")
    if one and not default and _values.begin_wrapped(body.decode("utf-8", "ignore"), more):
        return False
    objects = sum(map(_is_object, lines))
    if objects and (_is_object(lines[0]) or objects * 2 >= len(lines)):
        return True
    return default and not (one and _spans_lines(body))


def _key_of(source: content.Source) -> str:
    """The key under which a file has its rows; empty where they stand alone."""
    with content.opened(source, salvage=True) as file:
        head, more = file.read(_KEY_WITHIN), bool(file.read(1))
    begun = _values.begin_wrapped(head.decode("utf-8", "ignore").removeprefix("\ufeff"), more)
    return str(json.loads(begun["key"])) if begun else ""


class Jsonl(content.Whole):
    """Reads lines; of a file that holds other values, ``json`` reads these.

    Attributes:
        lines: whether a file holds lines, where its beginning does not show it.
    """

    name = "jsonl"
    suffixes: tuple[str, ...] = _SUFFIXES
    lines = True

    def cut(self, version: file_version.FileVersion) -> list[contract.Split]:
        if not _is_lines(version, default=self.lines, limit=MAX_LINE):
            return [content.whole(version, "json")]
        return self.line_splits(version)

    def line_splits(self, version: file_version.FileVersion) -> list[contract.Split]:
        """The pieces of a file that is known to hold lines."""
        kind = content.compression(version)
        if kind is None:
            pieces = [
                frames.FramedPiece(start, stop, start, stop, 0, 0)
                for start, stop in _line_ranges(version, SPLIT_BYTES)
            ]
        else:
            pieces = frames.pieces(version, kind, SPLIT_BYTES)
        if kind and not pieces:
            return [content.whole(version, "jsonl")]
        return [
            contract.Split(
                version.path,
                start=one.start,
                stop=one.stop,
                sha256="",
                reader="jsonl",
                piece=int(one.start > 0),
                version=version.range(one.first, one.last),
                around=(one.skip, one.rest) if kind else None,
            )
            for one in pieces
        ]

    def read(self, split: contract.Split) -> Iterator[contract.Lines]:
        version = content.version_of(split)
        with content.opened_split(version, split) as stream:
            batches = records(stream, at_start=split.start == 0)
            yield from files.counted(batches, split.path, version.size)
            if damage := content.damage_of(stream):
                yield contract.Lines([], 0, damage)

    def glimpse(self, source: content.Source, rows: int, salvage: bool = False) -> contract.Glimpse:
        if not _is_lines(source, default=self.lines, limit=MAX_LINE):
            values = functools.partial(_values.records, path=content.path_of(source))
            glimpse = _tables.first_rows(source, values, rows=rows, salvage=salvage)
            return replace(glimpse, key=_key_of(source))
        if content.compression(source):
            return _tables.first_rows(source, records, rows=rows, salvage=salvage)
        return _tables.windows(source, rows=rows, records=records, longest=MAX_LINE)


READER = Jsonl()


_LOOK = 1 << 14  # bytes that are looked through for a line end; more where there is none
_MOST = 1 << 22


def _line_ranges(version: file_version.FileVersion, least: int) -> list[tuple[int, int]]:
    """The ranges of a file, in order: at least so many bytes and up to the next line end."""

    stored = version.stored

    def found() -> list[int]:
        return list(_cuts(version, least))

    cuts = stored.noted(f"lines of {least} bytes", found) if stored else found()
    return list(itertools.pairwise([0, *cuts]))


def _cuts(version: file_version.FileVersion, least: int) -> Iterator[int]:
    at = 0
    with file_version.VersionBytes(version) as source:
        while at < version.size:
            at = _line_end(source, at + least, version.size)
            yield at


def _line_end(source: file_version.VersionBytes, at: int, size: int) -> int:
    """Behind the first line end that is at this place or after it; else the end of the file."""
    amount = _LOOK
    while at < size:
        block = source.read(at, min(at + amount, size))
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
        amount = min(4 * amount, _MOST)
    return size


# A JSON file: an array of objects, also under the only key of an object, or objects one after the
# other (pretty-printed or not).


class _Json(Jsonl):
    name = "json"
    suffixes = (".json", ".json.gz", ".json.zst")
    lines = False

    def read(self, split: contract.Split) -> Iterator[contract.Lines]:
        return content.unsplit(split, lambda file, name: _values.records(file, path=name))


JSON = _Json()
