"""The number of rows in a piece of a file, counted without the reader that reads it.

A row that a reader loses leaves no trace, since no later stage knows of it. So the rows of a split
are counted a second time in other ways: line ends in the bytes, the row counts that Parquet files
contain, and the items of JSON arrays of up to 16 MB. No row of another container is counted twice.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import orjson
import zstandard

from stages import contract, files
from stages.errors import ReadingError, SurroundingsError, counted
from stages.files import content

_BOM = b"\xef\xbb\xbf"
_HELD = 1 << 24  # bytes of an array whose items are counted


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
            unpacked = zstandard.ZstdDecompressor(max_window_size=files.ZSTD_WINDOW)
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


def _items(split: contract.Split) -> Count | None:
    """The items of a JSON array that is small enough to be held; others are not counted."""
    text = b""
    for chunk in _chunks(split):
        text += chunk
        if len(text) > _HELD:
            return None
    items = orjson.loads(text)
    return _alone(len(items)) if isinstance(items, list) else None


def _parquet(file: IO[bytes]) -> Any:
    """A file's ``pyarrow.parquet.FileMetaData``."""
    import pyarrow.parquet as pq  # which brings the clients of three clouds with it

    return pq.read_metadata(file)


def _row_groups(split: contract.Split) -> Count:
    with _opened(split) as file:
        metadata = _parquet(file)
    rows = sum(metadata.row_group(group).num_rows for group in range(split.start, split.stop))
    return _alone(rows)


_COUNTERS: dict[str, Callable[[contract.Split], Count | None]] = {
    "jsonl": _lines,
    "json": _items,
    "parquet": _row_groups,
}


def count(split: contract.Split) -> Count | None:
    """The rows of a split; None for other containers and for damaged ones."""
    counter = _COUNTERS.get(split.reader)
    try:
        return counter(split) if counter else None
    except SurroundingsError:
        raise
    except (EOFError, OSError, ValueError, zlib.error, zstandard.ZstdError):
        return None  # it is damaged, or several values


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
