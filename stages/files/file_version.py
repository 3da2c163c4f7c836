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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from xxhash import xxh3_128_digest

from stages.files import file_hash
from stages.files.file_hash import FileState
from stages.files.version_bytes import Compared, VersionBytes

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
    state: FileState | None = None
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

    @property
    def line_count(self) -> int:
        """Lines in the pieces; the last one may have no end."""
        return self.ends + (not self.whole)

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
        digest, pieces, ends, last = hashlib.sha256(), [], 0, b"\n"
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(VersionBytes(self))
            target = stack.enter_context(copy.open("wb")) if copy and not held else None
            for start, stop in self._steps(step):
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
            there,
            pieces=tuple(pieces),
            sha256=digest.hexdigest(),
            ends=ends,
            whole=last == b"\n",
        )

    def _steps(self, step: int) -> Iterator[tuple[int, int]]:
        for piece in self.pieces:
            for start in range(piece.start, piece.stop, step):
                yield start, min(start + step, piece.stop)


def look(path: str) -> FileVersion:
    """The version of a file that is there, of which only the first bytes are read.

    Raises:
        OSError: it cannot be read.
    """
    with Path(file_hash.required(path)).open("rb", buffering=0) as file:
        state = file_hash.of(file)
        head = file.read(_HEAD)
    return FileVersion(
        path,
        state.size,
        head=head,
        pieces=(FilePiece(0, state.size),) if state.size else (),
        state=state,
        settled=state.settled(),
    )


def take(path: str) -> FileVersion:
    """Look at a file, and hash it.

    Raises:
        SurroundingsError: another process writes to it meanwhile.
        OSError: it cannot be read.
    """
    return look(path).hashed()
