"""gzip members and zstandard frames, one after the other, in bounded memory.

Unlike the libraries' own readers it notices a frame that is cut off, never expands one step to more
than about 64 MB (so a compression bomb is read like any long file), and can stop at a damage and
keep the text before it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import IO, Any

import zstandard

from stages.contract import Lines
from stages.errors import ContainerError

_MAX_TEXT = 1 << 20
# zstandard has no limit on the output of one step; a kilobyte expands to 32 MB at most.
_STEP = {"gz": 1 << 16, "zst": 1 << 10}


class Inflated(io.RawIOBase):
    """A stream of the decompressed bytes.

    Attributes:
        damage: with ``salvage``, the error that ended the stream early; None when there was none.
        bytes_in, bytes_out: compressed bytes read, and decompressed bytes.
    """

    def __init__(self, file: IO[bytes], kind: str, salvage: bool = False) -> None:
        self.damage: str | None = None
        self.bytes_in = self.bytes_out = 0
        self._file = file
        self._gzip = kind == "gz"
        self._step = _STEP[kind]
        self._salvage = salvage
        self._frame = self._new()
        self._started = False  # inside a frame
        self._frames = 0
        self._input = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def _new(self) -> Any:
        if self._gzip:
            return zlib.decompressobj(31)  # 31: gzip format, whose checksum and length are checked
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()

    def _inflate(self) -> bytes:
        if not self._gzip:
            text: bytes = self._frame.decompress(self._input)
            self._input = self._frame.unused_data if self._frame.eof else b""
            return text
        before = self._frame.copy() if self._salvage else None
        try:
            text = self._frame.decompress(self._input, _MAX_TEXT)
        except zlib.error as error:
            if before is None:
                raise
            self.damage = str(error)
            return _until_damage(before, self._input)
        done = self._frame.eof
        self._input = self._frame.unused_data if done else self._frame.unconsumed_tail
        return text

    def _more(self) -> bool:
        """Decompress the next piece; False at the end of the file."""
        if self._frame.eof:
            self._frame = self._new()
            self._started = False
            self._frames += 1
        if self._gzip and self._frames and not self._started:
            self._input = self._input.lstrip(b"\0")  # zero bytes after a member are padding
        if not self._input:
            self._input = self._file.read(self._step)
            self.bytes_in += len(self._input)
            if not self._input:
                if self._started:
                    raise EOFError("it is cut off")
                return False
            if self._gzip and self._frames and not self._started:
                return True  # these bytes may be padding: look at them in the next round
        self._started = True
        self._ready = memoryview(self._inflate())
        self.bytes_out += len(self._ready)
        if expands_too_far(self.bytes_in, self.bytes_out):
            raise EOFError(f"it {TOO_FAR}")
        return True

    def _advance(self) -> bool:
        if self.damage is not None:
            return False
        try:
            return self._more()
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            if not self._salvage:
                raise
            self.damage = str(error)
            return False

    def readinto(self, buffer: Any) -> int:
        while not len(self._ready):
            if not self._advance():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _until_damage(frame: Any, compressed: bytes) -> bytes:
    """The text before the damaged byte: decompressed byte by byte until that one."""
    text = bytearray()
    try:
        for at in range(len(compressed)):
            text += frame.decompress(compressed[at : at + 1])
    except zlib.error:
        pass
    return bytes(text)


# Limits on rows and text for the size of a file, so that a small file cannot be read for ever.
#
# A file of plain lines has no more rows than bytes. A compressed file can claim a million rows in a
# kilobyte, and a table any number of rows in a few bytes, which no real text does.


FREE_ROWS = 1 << 18  # rows or lines that any file may have; larger files, one for each byte
FREE_TEXT = 1 << 30  # bytes that any file may expand to; larger files, EXPANSION times their size
EXPANSION = 1100  # more than gzip can reach
VALUE = 64  # bytes that a value of a table counts as before it is known how long it is; a null, too
# Bytes of text that a zstandard frame may refer back to: all that ``zstd --long=31`` writes. Memory
# is taken as text comes, so a file without so much of it takes less.
ZSTD_WINDOW = 1 << 31


TOO_FAR = f"expands more than {EXPANSION} times, more than any real text"


def require_rows(path: str, rows: int, size: int) -> None:
    """Check that a file does not have many more rows than bytes.

    Raises:
        ContainerError: it has.
    """
    if rows > max(FREE_ROWS, size):
        raise ContainerError(
            f"{path} holds more than {max(FREE_ROWS, size)} rows or blank lines in {size} bytes; "
            f"the limit is one for each byte, and {FREE_ROWS} for a small file.",
            "Write it again without the repeated lines.",
        )


def counted(parts: Iterator[Lines], path: str, size: int) -> Iterator[Lines]:
    """The same batches of lines, counted.

    Args:
        size: bytes of the file.

    Raises:
        ContainerError: see ``require_rows``.
    """
    rows = 0
    for part in parts:
        rows += part.lines
        require_rows(path, rows, size)
        yield part


def expands_too_far(bytes_in: int, bytes_out: int) -> bool:
    """Whether compressed bytes expanded to more than any real text does."""
    return bytes_out > max(FREE_TEXT, EXPANSION * bytes_in)


def require_text(size: int, text: int) -> None:
    """Check that a table, or a part of it, does not hold more text than its bytes can.

    Args:
        size: bytes of the file; ``text``: what they are to become, or have become.

    Raises:
        ContainerError: it does; the caller names the file.
    """
    if expands_too_far(size, text):
        raise ContainerError(f"It {TOO_FAR}.", "Write it again without the repeated values.")
