"""One version of a file, or of a range of it: whatever is read of it must be bytes of that version.

A file may be appended to, cut off, overwritten or replaced while a build reads it, and it is opened
several times: to cut it into pieces, to detect its format, by each worker. ``look`` notes which
version there is, without reading it: what the file system, or the store, says of it. ``hashed``
reads the range once and names its bytes. Everything else comes through ``FileVersion.open``, which
gives bytes that are held in memory, or compares them: with their hash, where they were hashed, else
with what the file system or the store says after they were read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from xxhash import xxh3_128_digest

from stages.errors import SurroundingsError
from stages.files import file_hash

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE = 16 << 20  # bytes that are compared together
HELD = 64 << 20  # bytes of a range that may be held in memory
BUFFER = 1 << 20
_FEW = 1 << 14  # where each read is a request, and nobody reads all
_HEAD = 8


class Stored(Protocol):
    """One version of a file that lies elsewhere. It can be pickled."""

    @property
    def key(self) -> str:
        """Names the version."""
        ...

    def read(self, start: int, stop: int) -> bytes:
        """A range of its bytes.

        Raises:
            SurroundingsError: it cannot be fetched, or is another version by now.
        """
        ...

    def look(self, start: int, stop: int) -> bytes:
        """A few bytes, which others will look at, too; raises what ``read`` does."""
        ...

    def noted(self, what: str, find: Callable[[], list[int]]) -> list[int]:
        """Numbers that follow from its bytes; they are found once."""
        ...


class _Reader(io.BufferedReader):
    """Takes no more memory for a read than the file has bytes, whatever a header says to read."""

    raw: Compared

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(-1 if size is None or size >= self.raw.size else size)


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A range of a file's bytes.

    Attributes:
        check: their 128-bit XXH3, by which a change is noticed when they are read again; empty
            where they were not read yet. It costs a tenth of sha256, and nobody chooses bytes for a
            file to change to.
        content: the bytes, where they are held.
    """

    start: int
    stop: int
    check: bytes = b""
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A range of a file, as it was at one time.

    Attributes:
        path: as it is opened, and as messages have it.
        size: of the whole file; ``head``: its first bytes.
        pieces: what may be read, in order.
        state: of the file; None where it is not on this machine.
        settled: a change since then has given the file another state; where not, it had just been
            written, and the next write might leave its times as they are.
        stored: what reads it, where it is not on this machine.
        sha256: of the pieces' bytes; empty where they were not hashed yet.
        ends: the number of line ends in them; ``whole``: the last byte is one.
    """

    path: str
    size: int
    head: bytes
    pieces: tuple[FilePiece, ...]
    state: file_hash.FileState | None = None
    settled: bool = False
    stored: Stored | None = None
    sha256: str = ""
    ends: int = 0
    whole: bool = True

    @property
    def start(self) -> int:
        """Where its first piece begins."""
        return self.pieces[0].start if self.pieces else 0

    @property
    def stop(self) -> int:
        """Behind its last piece."""
        return self.pieces[-1].stop if self.pieces else 0

    @property
    def mark(self) -> str:
        """Names the version in every process, before it is read."""
        if self.stored is not None:
            return self.stored.key
        return f"{self.size} {self.state.modified}" if self.state else str(self.size)

    @property
    def is_fixed(self) -> bool:
        """Whether other bytes are noticed without a hash of the ones that were there."""
        return self.stored is not None or self.settled

    @property
    def is_held(self) -> bool:
        """Whether all its bytes are in memory."""
        return all(piece.content is not None for piece in self.pieces)

    def range(self, start: int, stop: int, *more: tuple[int, int]) -> FileVersion:
        """Some bytes of the same version."""
        pieces = tuple(FilePiece(*each) for each in ((start, stop), *more))
        return replace(self, pieces=pieces, sha256="", ends=0, whole=True)

    def open(self, again: bool = False) -> IO[bytes]:
        """The bytes of the pieces, at their places in the file.

        Args:
            again: what is built from was read and compared before, and these bytes are only
                counted: their hash is compared only if the file's size or times have changed.

        Raises:
            SurroundingsError: from here or from reading, when the bytes have changed.
        """
        unread = self.stored is not None and not self.sha256
        return _Reader(Compared(self, again), _FEW if unread else BUFFER)

    def hashed(self, hold: int = 0, copy: Path | None = None) -> FileVersion:
        """The same after its bytes were read, once.

        Args:
            hold: bytes that are held in memory for who opens it, if it has no more.
            copy: a file that gets the others, where this version is not on this machine.

        Raises:
            SurroundingsError: they are bytes of another version.
        """
        length = sum(piece.stop - piece.start for piece in self.pieces)
        held = length <= hold
        step = max(length, 1) if held else PIECE
        starts = ((at, one.stop) for one in self.pieces for at in range(one.start, one.stop, step))
        ranges = [(start, min(start + step, stop)) for start, stop in starts]
        digest, pieces, ends, last = hashlib.sha256(), [], 0, b"\n"
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(VersionBytes(self))
            target = stack.enter_context(copy.open("wb")) if copy and not held else None
            for start, stop in ranges:
                content = source.read(start, stop)
                digest.update(content)
                ends, last = ends + content.count(b"\n"), content[-1:] or last
                check = b"" if held else xxh3_128_digest(content)
                pieces.append(FilePiece(start, stop, check, content if held else None))
                if target is not None:
                    target.seek(start)
                    target.write(content)
        there = self if copy is None or held else replace(self, path=str(copy), stored=None)
        return replace(
            there, pieces=tuple(pieces), sha256=digest.hexdigest(), ends=ends, whole=last == b"\n"
        )


def look(path: str) -> FileVersion:
    """The version of a file that is there, of which only the first bytes are read.

    Raises:
        OSError: it cannot be read.
    """
    with Path(file_hash.required(path)).open("rb", buffering=0) as file:
        state, head = file_hash.of(file), file.read(_HEAD)
    pieces = (FilePiece(0, state.size),) if state.size else ()
    return FileVersion(path, state.size, head, pieces, state, settled=state.settled())


def take(path: str) -> FileVersion:
    """Look at a file, and hash it."""
    return look(path).hashed()


def changed(path: str) -> SurroundingsError:
    """The error for an input whose bytes have changed since it was looked at."""
    return SurroundingsError(
        f"{path} changed while the build was reading it.",
        "Build again when no other process writes to it.",
    )


class VersionBytes(contextlib.AbstractContextManager["VersionBytes"]):
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
