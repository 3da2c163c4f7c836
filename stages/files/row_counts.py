"""The number of rows in a piece of a file, counted without the reader that reads it.

A row that a reader loses leaves no trace, since no later stage knows of it. So the rows of every
split are counted a second time in other ways: line ends in the bytes, commas between the items of a
JSON array, the row counts that Parquet and Arrow files contain; those of tables of texts by the
standard library. No other row is parsed.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import zstandard

from stages import contract, late
from stages.errors import ReadingError, SurroundingsError, counted
from stages.files import content, frames

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
else:
    np = late.module("numpy")
    pa = late.module("pyarrow")

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_LONGEST = (1 << 31) - 1  # characters of a cell; the reader has a limit of its own


@dataclass(frozen=True, slots=True)
class Count:
    """Rows of a split, its lines (blank ones included), and the line of the last row.

    Lines count from the split's start; ``last`` is -1 where there is no row.
    """

    rows: int
    lines: int
    last: int

    def __str__(self) -> str:
        return (
            f"{counted(self.rows, 'row')} on {counted(self.lines, 'line')}, the last on "
            f"line {self.last + 1}"
        )


def _alone(rows: int) -> Count:
    """The count of a container that has no blank lines."""
    return Count(rows, rows, rows - 1)


def _opened(split: contract.Split) -> IO[bytes]:
    """The version of the file that was hashed; readers of other packages may not hash it."""
    return split.version.open(again=True) if split.version else Path(split.path).open("rb")


def _chunks(split: contract.Split) -> Iterator[bytes]:
    """The split's text without a byte-order mark at the start of the file."""
    kind = content.compression(split.version or split.path)
    with _opened(split) as packed:
        file = packed
        if kind == "gz":
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=packed))  # not declared as one
        elif kind == "zst":
            unpacked = zstandard.ZstdDecompressor(max_window_size=frames.ZSTD_WINDOW)
            file = unpacked.stream_reader(packed, read_across_frames=True)
        else:
            file.seek(split.start)
        before = split.around[0] if split.around else 0
        while before and (passed := file.read(min(before, content.CHUNK))):
            before -= len(passed)
        whole = split.around is None and (kind is not None or split.reader != "jsonl")
        left = sys.maxsize if whole else split.stop - split.start
        first = split.start == 0
        while chunk := file.read(min(content.CHUNK, left)):
            left -= len(chunk)
            yield chunk.removeprefix(_BOM) if first else chunk
            first = False


def _lines(split: contract.Split) -> Count:
    """Line ends, and how many of the lines between them are not blank."""
    rows = lines = 0
    last = -1
    begun = filled = False
    for chunk in _chunks(split):
        head, *others = chunk.split(b"\n")
        filled = filled or bool(head.strip())
        for piece in others:
            last = lines if filled else last
            lines += 1
            rows += filled
            filled = bool(piece.strip())
        begun = chunk[-1:] != b"\n"
    return Count(rows + filled, lines + begun, lines if filled else last)


def _unquoted(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """JSON text without blanks and without the contents of strings; a string leaves a quote."""
    inside, carry = False, b""
    for chunk in chunks:
        text = carry + chunk
        body = text.rstrip(b"\\")  # a run of backslashes may continue in the next chunk
        carry, text = text[len(body) :], body
        # Escaped backslashes first, then escaped quotes: what is left are the quotes of strings.
        pieces = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = pieces[1::2] if inside else pieces[::2]
        inside ^= len(pieces) % 2 == 0
        if inside and len(pieces) > 1:  # a string that begins here and ends in another chunk
            outside.append(b"")
        yield b'"'.join(outside).translate(None, _BLANKS)


@functools.cache
def _depths() -> npt.NDArray[np.int64]:
    """By byte: how it changes the nesting depth of JSON."""
    depths = np.zeros(256, np.int64)
    depths[list(b"[{")] = 1
    depths[list(b"]}")] = -1
    return depths


def _values(split: contract.Split) -> Count | None:
    """Commas between the items of an array, or objects that open outside of any other."""
    depth = commas = opened = 0
    in_array: bool | None = None
    filled = loose = False
    for text in _unquoted(_chunks(split)):
        if not text:
            continue
        data = np.frombuffer(text, np.uint8)
        in_array = data[0] == ord("[") if in_array is None else in_array
        # The cumulative sum of the changes is the depth after each byte.
        steps = _depths()[data]
        after = depth + np.cumsum(steps)
        depth = int(after[-1])
        commas += int(((data == ord(",")) & (after == 1)).sum())
        opened += int(((steps > 0) & (after == 1)).sum())
        filled |= bool((after - (steps > 0) > 0).any())
        loose |= bool(((steps == 0) & (after == 0)).any())
    if in_array:
        return _alone(commas + filled)
    return None if loose else _alone(opened)  # numbers and words without brackets cannot be counted


def _spelled(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines with their ends, one character for each byte: delimiters and quotes are ASCII."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (f"{line.decode('latin-1')}\n" for line in lines)
    if rest:
        yield rest.decode("latin-1")


def _separated(split: contract.Split) -> Count:
    """Rows behind the header of a table of texts, as the standard library reads it."""
    container, _, settings = split.reader.partition("/")
    said = json.loads(settings or "{}")
    csv.field_size_limit(_LONGEST)
    count = last = -1  # the header is no row
    begun = 0
    rows = csv.reader(
        _spelled(_chunks(split)),
        delimiter=said.get("delimiter", _DELIMITERS[container]),
        quoting=csv.QUOTE_NONE if said.get("quoting") == "none" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    for cells in rows:
        if cells:
            count += 1
            last = begun if count else -1
        begun = rows.line_num
    return Count(max(count, 0), begun, last)


def _parquet(file: IO[bytes]) -> Any:
    """A file's ``pyarrow.parquet.FileMetaData``."""
    import pyarrow.parquet as pq  # which brings the clients of three clouds with it

    return pq.read_metadata(file)


def _row_groups(split: contract.Split) -> Count:
    with _opened(split) as file:
        metadata = _parquet(file)
    rows = sum(metadata.row_group(group).num_rows for group in range(split.start, split.stop))
    return _alone(rows)


def _record_batches(split: contract.Split) -> Count:
    with _opened(split) as file, pa.PythonFile(file, "r") as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        opened = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        if is_file:
            opened = map(opened.get_batch, range(opened.num_record_batches))
        return _alone(sum(batch.num_rows for batch in opened))


_COUNTERS: dict[str, Callable[[contract.Split], Count | None]] = {
    "jsonl": _lines,
    "json": _values,
    "parquet": _row_groups,
    "arrow": _record_batches,
    "hf": _record_batches,
    "csv": _separated,
    "tsv": _separated,
}


def count(split: contract.Split) -> Count | None:
    """The rows of a split; None for containers of other packages and for damaged ones."""
    counter = _COUNTERS.get(split.reader.partition("/")[0])
    try:
        return counter(split) if counter else None
    except SurroundingsError:
        raise
    except (csv.Error, EOFError, OSError, zlib.error, zstandard.ZstdError, pa.ArrowException):
        return None  # it is damaged


def require_covered(path: str, splits: Sequence[contract.Split]) -> None:
    """Check that every byte or row group of a file is in exactly one split.

    Raises:
        ReadingError: one is not, which is a bug of a reader.
    """
    reader = splits[0].reader if splits else ""
    if reader == "jsonl":
        version = splits[0].version
        end = version.size if version else Path(path).stat().st_size
    elif reader == "parquet":
        with _opened(splits[0]) as file:
            end = _parquet(file).num_row_groups
    else:
        return
    if any(split.around is not None for split in splits):
        end = splits[-1].stop
    at = 0
    for split in splits:
        at = split.stop if split.start == at else -1
    if at != end or not _is_read_whole(splits):
        raise ReadingError(f"{path} was cut into pieces that do not cover it.")


def _is_read_whole(splits: Sequence[contract.Split]) -> bool:
    """Whether the pieces of a compressed file are read from all its bytes; how much text these have
    is compared when they are read. True of other files."""
    versions = [split.version for split in splits if split.around is not None and split.version]
    at = 0
    for version in versions:
        if version.start > at:
            return False
        at = version.stop
    return not versions or at == versions[0].size
