"""Where a file of lines is cut: at the first line end that is so many bytes after the last cut.

The cuts depend on the file's bytes alone, and only the bytes around them are read to find them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from stages.files.file_version import FileVersion
from stages.files.version_bytes import VersionBytes

_LOOK = 1 << 14  # bytes that are looked through for a line end; more where there is none
_MOST = 1 << 22


def of(version: FileVersion, least: int) -> list[tuple[int, int]]:
    """The ranges of a file, in order: at least so many bytes and up to the next line end."""

    def found() -> list[int]:
        return list(_cuts(version, least))

    stored = version.stored
    cuts = found() if stored is None else stored.noted(f"lines of {least} bytes", found)
    return list(itertools.pairwise([0, *cuts]))


def _cuts(version: FileVersion, least: int) -> Iterator[int]:
    at = 0
    with VersionBytes(version) as source:
        while at < version.size:
            at = _line_end(source, at + least, version.size)
            yield at


def _line_end(source: VersionBytes, at: int, size: int) -> int:
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
