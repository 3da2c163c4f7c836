"""One version of a file: hashed once, in pieces; whatever is read later must be the same bytes.

A file may be appended to, cut off, overwritten or replaced while a build reads it, and it is opened
several times: to split it, to detect its format, by each worker. So it is hashed first, as a whole
and piece by piece. Everything that is read of it later comes through ``FileVersion.open``, which
compares the hash of a piece before it gives a byte of it; only who reads a piece a second time, to
count its rows, may leave it at a look at the file's size and times.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from xxhash import xxh3_128_digest

from stages.errors import SurroundingsError
from stages.files import file_state
from stages.files.file_state import FileState

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE = 16 << 20  # bytes; a piece extends to the next line end, at most to twice as many
BUFFER = 1 << 20
_HEAD = 8


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A range of a file's bytes.

    Attributes:
        sha256: names the bytes; ``check``: their 128-bit XXH3, by which a change is noticed when
            they are read again. It costs a tenth, and nobody chooses bytes for a file to change to.
        ends: the number of line ends in it; ``whole``: its last byte is one.
    """

    start: int
    stop: int
    sha256: str
    check: bytes
    ends: int
    whole: bool


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The bytes of a file at the time they were hashed.

    Attributes:
        size, sha256: of the whole file; ``head``: its first bytes.
        pieces: the pieces that may be read, in order.
        look: at the file when it was hashed; None where it had just been written, so that the next
            write might leave its times as they are.
    """

    path: str
    size: int
    sha256: str
    head: bytes
    pieces: tuple[FilePiece, ...]
    look: FileState | None = None

    def open(self, again: bool = False) -> IO[bytes]:
        """The bytes of the pieces, at their places in the file.

        Args:
            again: what is built from was read and compared before, and these bytes are only
                counted: their hash is compared only if the file's size or times have changed.

        Raises:
            SurroundingsError: from here or from reading, when the bytes have changed.
        """
        return io.BufferedReader(_Compared(self, again), BUFFER)

    def lines(self) -> list[FileVersion]:
        """The same version in runs of pieces that begin and end where lines do."""
        runs: list[list[FilePiece]] = []
        for piece in self.pieces:
            if runs and not runs[-1][-1].whole:
                runs[-1].append(piece)
            else:
                runs.append([piece])
        return [replace(self, pieces=tuple(run)) for run in runs]

    @property
    def range_sha256(self) -> str:
        """Hash of the pieces' bytes; where there are several, of their hashes."""
        hashes = [piece.sha256 for piece in self.pieces]
        return (
            hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
        )

    @property
    def line_count(self) -> int:
        """Lines in the pieces; the last one may have no end."""
        return sum(piece.ends for piece in self.pieces) + (not self.pieces[-1].whole)


def changed(path: str) -> SurroundingsError:
    """The error for an input whose bytes have changed since they were hashed."""
    return SurroundingsError(
        f"{path} changed while the build was reading it.",
        "Build again when no other process writes to it.",
    )


def take(path: str, piece: int = PIECE) -> FileVersion:
    """Hash a file.

    Args:
        piece: bytes of a piece, at least; the cuts depend only on it and on the file's bytes.

    Raises:
        SurroundingsError: another process writes to it meanwhile.
        OSError: it cannot be read.
    """
    pieces: list[FilePiece] = []
    head = b""
    now = time.time_ns()
    with Path(path).open("rb", buffering=BUFFER) as file, _Whole() as whole:
        before = file_state.of(file)
        for content in _contents(file, piece):
            start = pieces[-1].stop if pieces else 0
            head = head or content[:_HEAD]
            stop = start + len(content)
            alone = stop == before.size and not start  # one hash is both
            if not alone:
                whole.add(content)
            digest = hashlib.sha256(content).hexdigest()
            ends, is_whole = content.count(b"\n"), content.endswith(b"\n")
            check = xxh3_128_digest(content)
            pieces.append(
                FilePiece(start, stop, sha256=digest, check=check, ends=ends, whole=is_whole)
            )
        after = file_state.of(file)
    size = pieces[-1].stop if pieces else 0
    if (before.size, before.modified) != (after.size, after.modified) or size != before.size:
        raise changed(path)
    settled = before == after and max(before.modified, before.changed) < now - file_state.COARSE
    return FileVersion(
        path,
        size,
        sha256=pieces[0].sha256 if len(pieces) == 1 else whole.hexdigest(),
        head=head,
        pieces=tuple(pieces),
        look=before if settled else None,
    )


class _Whole:
    """The hash of a whole file, computed in a thread beside the hashes of its pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def __enter__(self) -> _Whole:
        return self

    def add(self, content: bytes) -> None:
        """The next bytes; waits for the ones before, so that few pieces are in memory."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(self._hash.update, content)

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _contents(file: IO[bytes], piece: int) -> Iterator[bytes]:
    inside = False  # inside a line that is longer than a piece
    while content := _content(file, 0 if inside else piece, 2 * piece):
        yield content
        inside = not content.endswith(b"\n")


def _content(file: IO[bytes], least: int, most: int) -> bytes:
    content = file.read(least)
    return content + file.readline(most - len(content))


class _Compared(io.RawIOBase):
    """Gives bytes of a file after checking the hash of the piece that they are in."""

    def __init__(self, version: FileVersion, again: bool = False) -> None:
        super().__init__()
        self._look = version.look if again else None
        self._path = version.path
        self._pieces = version.pieces
        self._starts = [piece.start for piece in version.pieces]
        self._at = self._starts[0] if self._starts else 0
        self._stop = version.pieces[-1].stop if version.pieces else 0
        self._checked: tuple[int, memoryview] = (-1, memoryview(b""))
        try:
            self._file = Path(version.path).open("rb")  # noqa: SIM115  # closed with this object
        except FileNotFoundError as error:
            raise SurroundingsError(
                f"{version.path} disappeared while the build was reading it.",
                "Put it back and build again.",
            ) from error

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
        if self._checked[0] != number:
            piece = self._pieces[number]
            self._file.seek(piece.start)
            content = self._file.read(piece.stop - piece.start)
            # After the read: what changes the file later has not changed these bytes.
            same = self._look is not None and file_state.of(self._file) == self._look
            if not same and xxh3_128_digest(content) != piece.check:
                raise changed(self._path)
            self._checked = (number, memoryview(content))
        return self._checked[1]

    def readinto(self, into: WriteableBuffer, /) -> int:
        buffer = memoryview(into)
        if not self._starts or not self._starts[0] <= self._at < self._stop:
            return 0
        number = bisect_right(self._starts, self._at) - 1
        rest = self._piece(number)[self._at - self._starts[number] :]
        size = min(len(buffer), len(rest))
        buffer[:size] = rest[:size]
        self._at += size
        return size

    def close(self) -> None:
        if hasattr(self, "_file"):  # not when it could not be opened
            self._file.close()
        self._checked = (-1, memoryview(b""))
        super().close()
