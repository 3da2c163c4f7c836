"""Files that are mapped, and whose pages are given back: a look costs no memory for long.

Every page of a mapped file that was looked at counts as memory of the process until the mapping
goes, though the kernel could have it back at any time. A process that reads gigabytes so seems to
hold gigabytes, and where memory is limited it is the one that is killed. And with each page that
is looked at the kernel maps its neighbours, sixteen at a time: who picks pieces from all over a
file would have all of it in memory. So many small pieces are read, which costs no more than their
pages.
"""

import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_FEW = 16  # pieces that are looked at, not read


class Mapped:
    """The bytes of a file, which must not shrink meanwhile.

    Attributes:
        descriptor: of the open file.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._map: mmap.mmap | None = None
        self.descriptor = os.open(path, os.O_RDONLY)  # as long as the mapping
        weakref.finalize(self, os.close, self.descriptor)
        if os.fstat(self.descriptor).st_size:  # nothing can be mapped of an empty file
            self._map = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)

    @property
    def content(self) -> memoryview:
        """The bytes; they stay mapped as long as something uses them."""
        return memoryview(b"" if self._map is None else self._map)

    def part(self, view: memoryview) -> "MappedBytes":
        """Some bytes of the file, given as they are mapped; of others, nothing is ever read."""
        first, whole = _address(view), _address(self.content)
        inside = whole <= first and first + len(view) <= whole + len(self.content)
        return MappedBytes(view, self, first - whole if inside else -1)

    def in_order(self) -> None:
        """Say that the bytes are read from the first to the last."""
        if self._map is not None and hasattr(mmap, "MADV_SEQUENTIAL"):
            self._map.madvise(mmap.MADV_SEQUENTIAL)

    def forget(self) -> None:
        """Give the pages back. The bytes stay where they are: whoever looks again, reads again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data if len(view) else 0


class MappedBytes(NamedTuple):
    """Some bytes of a mapped file.

    Attributes:
        view: these, mapped.
        start: where they begin in the file; -1 where they are a copy that is held in memory.
    """

    view: memoryview
    file: Mapped
    start: int


def joined(pieces: Sequence[tuple[MappedBytes, int, int]]) -> memoryview | bytes:
    """Pieces one behind the other, each from .. to .. of some bytes; one alone is not copied.

    Raises:
        OSError: a file has shrunk.
    """
    if len(pieces) == 1:
        ((of, begin, end),) = pieces
        return of.view[begin:end]
    if len(pieces) <= _FEW or any(of.start < 0 for of, _, _ in pieces):
        return b"".join([of.view[begin:end] for of, begin, end in pieces])
    read = os.pread
    content = b"".join(
        [read(of.file.descriptor, end - begin, of.start + begin) for of, begin, end in pieces]
    )
    if len(content) != sum(end - begin for _, begin, end in pieces):
        raise OSError("a part has become shorter while shards were made of it")
    return content
