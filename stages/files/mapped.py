"""Files that are mapped, and whose pages are given back: a look at them costs no memory for long.

Every page of a mapped file that was looked at counts as memory of the process until the mapping
goes, though the kernel could have it back at any time. A process that reads gigabytes so seems to
hold gigabytes, and where memory is limited it is the one that is killed.
"""

from __future__ import annotations

import mmap
from pathlib import Path


class Mapped:
    """The bytes of a file, which must not shrink meanwhile.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._map: mmap.mmap | None = None
        with Path(path).open("rb") as file:
            if file.seek(0, 2):  # nothing can be mapped of an empty file
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @property
    def content(self) -> memoryview:
        """The bytes; they stay mapped as long as something uses them."""
        return memoryview(b"" if self._map is None else self._map)

    def in_order(self) -> None:
        """Say that the bytes are read from the first to the last."""
        if self._map is not None and hasattr(mmap, "MADV_SEQUENTIAL"):
            self._map.madvise(mmap.MADV_SEQUENTIAL)

    def forget(self) -> None:
        """Give the pages back. The bytes stay where they are: whoever looks again, reads again."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
