"""Where a file of lines is cut: at the first line end that is so many bytes after the last cut.

The cuts depend on the file's bytes alone, and only the bytes around them are read to find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from stages.files.file_version import FileVersion

_LOOK = 1 << 14  # bytes that are looked through for a line end; more where there is none
_MOST = 1 << 22


def of(version: FileVersion, least: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file, in order: at least so many bytes and up to the next line end."""
    start = 0
    with version.open() as file:
        while start < version.size:
            stop = _line_end(file, start + least, version.size)
            yield start, stop
            start = stop


def _line_end(file: IO[bytes], at: int, size: int) -> int:
    """Behind the first line end that is at this place or after it; else the end of the file."""
    amount = _LOOK
    while at < size:
        file.seek(at)
        block = file.read(min(amount, size - at))
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
        amount = min(4 * amount, _MOST)
    return size
