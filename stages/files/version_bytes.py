"""The bytes of a version of a file, and the refusal of any others."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_128_digest

from stages.errors import SurroundingsError
from stages.files import file_hash

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from stages.files.file_version import FileVersion


def changed(path: str) -> SurroundingsError:
    """The error for an input whose bytes have changed since it was looked at."""
    return SurroundingsError(
        f"{path} changed while the build was reading it.",
        "Build again when no other process writes to it.",
    )


class VersionBytes:
    """Ranges of a file, open until the block ends: of one of this machine, or of a store, which
    compares the version itself.

    Raises:
        SurroundingsError: there is no such file any more.
    """

    def __init__(self, version: FileVersion) -> None:
        self._path, self._state, self._stored = version.path, version.state, version.stored
        self._file = None
        if self._stored is None:
            try:
                self._file = Path(version.path).open("rb", buffering=0)  # noqa: SIM115  # see close
            except FileNotFoundError as error:
                raise SurroundingsError(
                    f"{version.path} disappeared while the build was reading it.",
                    "Put it back and build again.",
                ) from error

    def __enter__(self) -> VersionBytes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, start: int, stop: int, checked: bool = True) -> bytes:
        """A range.

        Args:
            checked: the file must still be as it was when it was looked at; else the caller
                compares the bytes.

        Raises:
            SurroundingsError: it is not.
        """
        if self._stored is not None:
            return self._stored.read(start, stop)
        assert self._file is not None
        self._file.seek(start)
        content = b""
        while more := self._file.read(stop - start - len(content)):
            content = content + more if content else more
        # After the read: what changes the file later has not changed these bytes.
        if checked and (len(content) != stop - start or not self.is_same()):
            raise changed(self._path)
        return content

    def look(self, start: int, stop: int) -> bytes:
        """The same of a few bytes."""
        return self.read(start, stop) if self._stored is None else self._stored.look(start, stop)

    def is_same(self) -> bool:
        """Whether nobody has written to it since it was looked at."""
        return self._file is None or file_hash.of(self._file) == self._state

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class Compared(io.RawIOBase):
    """Gives bytes of a version: held ones, or after a look whether they are those."""

    def __init__(self, version: FileVersion, again: bool = False) -> None:
        super().__init__()
        self._again = again and version.settled
        self._path = version.path
        self._pieces = version.pieces
        self._starts = [piece.start for piece in version.pieces]
        self._at = self._starts[0] if self._starts else 0
        self._stop = self.size = version.stop
        self._checked: tuple[int, memoryview] = (-1, memoryview(b""))
        held = version.pieces and version.is_held
        self._source: VersionBytes | None = None if held else VersionBytes(version)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._stop}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def _piece(self, number: int) -> memoryview:
        piece = self._pieces[number]
        if piece.content is not None:
            return memoryview(piece.content)
        if self._checked[0] != number:
            assert self._source is not None
            content = self._source.read(piece.start, piece.stop, checked=False)
            # After the read: what changes the file later has not changed these bytes.
            same = self._again and self._source.is_same()
            if not same and xxh3_128_digest(content) != piece.check:
                raise changed(self._path)
            self._checked = (number, memoryview(content))
        return self._checked[1]

    def readinto(self, into: WriteableBuffer, /) -> int:
        buffer = memoryview(into)
        if not self._starts or self._at >= self._stop:
            return 0
        number = bisect_right(self._starts, self._at) - 1
        piece = self._pieces[max(number, 0)]
        if not piece.start <= self._at < piece.stop:
            raise OSError(f"{self._path}: byte {self._at} is not in the range that was read")
        if piece.check or piece.content is not None:
            rest = self._piece(number)[self._at - piece.start :]
        else:
            assert self._source is not None
            stop = min(self._at + len(buffer), piece.stop)
            rest = memoryview(self._source.look(self._at, stop))
        size = min(len(buffer), len(rest))
        buffer[:size] = rest[:size]
        self._at += size
        return size

    def close(self) -> None:
        source: VersionBytes | None = getattr(self, "_source", None)
        if source is not None:  # or it could not be opened
            source.close()
        self._checked = (-1, memoryview(b""))
        super().close()
