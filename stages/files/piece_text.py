"""The text of a piece of a compressed file, which is read from whole frames."""

from __future__ import annotations

import io
from typing import IO, Any

_BLOCK = 1 << 16


class PieceText(io.RawIOBase):
    """The text of a piece.

    Args:
        file: the text of its frames; ``skip``, ``length``, ``rest``: the bytes of it before the
            piece, in it and behind it.

    Raises:
        EOFError: from reading, where the frames do not have as much text as they should.
    """

    def __init__(self, file: IO[bytes], skip: int, length: int, rest: int) -> None:
        self._file, self._skip, self._left, self._rest = file, skip, length, rest

    def readable(self) -> bool:
        return True

    def _read(self, size: int) -> bytes:
        block = self._file.read(size)
        if not block:
            raise EOFError("a frame has less text than it should")
        return block

    def _pass(self, size: int) -> None:
        while size:
            size -= len(self._read(min(size, _BLOCK)))

    def readinto(self, into: Any) -> int:
        self._pass(self._skip)
        self._skip = 0
        if self._left:
            block = self._read(min(len(into), self._left))
            into[: len(block)] = block
            self._left -= len(block)
            return len(block)
        # The rest is read for the checksums, and because a table of frames may be wrong.
        self._pass(self._rest)
        self._rest = 0
        if self._file.read(1):
            raise EOFError("a frame has more text than it should")
        return 0
