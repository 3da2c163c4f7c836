"""Opening files that may be compressed, whole or a piece of them, their rows up to where they are
damaged, and hashes of files."""

import contextlib
import io
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import zstandard

from stages import files
from stages.contract import Cutter, Lines, Split
from stages.errors import ContainerError, SurroundingsError
from stages.files import file_version, frames
from stages.files.file_version import FileVersion, changed

CHUNK = 1 << 20
Source: TypeAlias = str | FileVersion
_MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}


def path_of(source: Source) -> str:
    """The file's name."""
    return source if isinstance(source, str) else source.path


def bytes_of(source: Source) -> IO[bytes]:
    """The file's bytes, not decompressed: those of a version, or the current ones of a path."""
    return open(source, "rb", buffering=CHUNK) if isinstance(source, str) else source.open()


def is_elsewhere(source: Source) -> bool:
    """Whether reading takes a transfer."""
    return isinstance(source, FileVersion) and source.stored is not None and not source.is_held


def size_of(source: Source) -> int:
    """The file's size in bytes."""
    return os.path.getsize(source) if isinstance(source, str) else source.size


def compression(source: Source) -> str | None:
    """``gz`` or ``zst``: by the suffix, else by the first bytes; None for neither."""
    for kind in _MAGIC.values():
        if path_of(source).lower().endswith(f".{kind}"):
            return kind
    if isinstance(source, str):
        with open(source, "rb") as file:
            head = file.read(4)
    else:
        head = source.head
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


@contextlib.contextmanager
def opened(source: Source, salvage: bool = False) -> Iterator[IO[bytes]]:
    """Open for reading, decompressed, in memory that does not grow with the file.

    Args:
        salvage: end without an error at a damage (see ``damage_of``).

    Raises:
        ContainerError: the compressed stream is damaged or cut off; rows before the damage cannot
            be trusted either, since the checksum that covers them is at the end.
    """
    kind = compression(source)
    try:
        with bytes_of(source) as file:
            if kind is None:
                yield file
            else:
                yield io.BufferedReader(frames.Inflated(file, kind, salvage), CHUNK)
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ContainerError(
            f"{path_of(source)} is damaged: {error}.",
            "Fetch it again; none of its rows can be trusted. --salvage keeps those before the "
            "damage.",
        ) from error


@contextlib.contextmanager
def opened_split(version: FileVersion, split: Split) -> Iterator[IO[bytes]]:
    """The same of the text of a split; raises as ``opened``."""
    with opened(version, split.salvage) as file:
        if split.around is None:
            yield file
        else:
            skip, rest = split.around
            yield io.BufferedReader(PieceText(file, skip, split.stop - split.start, rest), CHUNK)


def damage_of(file: IO[bytes]) -> str | None:
    """The damage that ended an opened stream early; None when there was none."""
    raw = getattr(file, "raw", None)
    return raw.damage if isinstance(raw, frames.Inflated) else None


def expansion(file: IO[bytes]) -> float:
    """Decompressed bytes per byte of the file, as far as an opened stream was read."""
    raw = getattr(file, "raw", None)
    return raw.bytes_out / max(raw.bytes_in, 1) if isinstance(raw, frames.Inflated) else 1.0


def version_of(split: Split) -> FileVersion:
    """The version that a split was cut from.

    Raises:
        SurroundingsError: the split has none, and the file has changed since.
    """
    if split.version is not None:
        return split.version
    current = file_version.take(split.path)
    if current.sha256 != split.sha256:
        raise file_version.changed(split.path)
    return current


def name_in_messages(split: Split) -> str:
    """The name of the file in a message about its damage.

    With ``--salvage`` the message is stored in a part, which depends on the bytes of the file alone
    and not on its path.
    """
    return "The file" if split.salvage else split.path


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


def unsplit(split: Split, read: Callable[[IO[bytes], str], Iterator[Lines]]) -> Iterator[Lines]:
    """What ``read`` finds in the open file, which it calls by a name for messages.

    Of a damaged file that is to be salvaged, the rows before the damage, and then what it is.

    Raises:
        ContainerError: the file is damaged or not what its name says, and is not to be salvaged.
    """
    version = version_of(split)
    with opened(version, split.salvage) as file:
        try:
            yield from files.counted(read(file, name_in_messages(split)), split.path, version.size)
        except ContainerError as error:
            if not split.salvage:
                raise
            yield Lines([], 0, damage_of(file) or error.what)
            return
        if damage := damage_of(file):
            yield Lines([], 0, damage)


# Splits of a file before and after their bytes were read.
#
# A reader cuts a version of a file, of which it reads little. Whoever makes the part of a split
# reads its bytes, once: from then on they are known by their hash.


def whole(version: FileVersion, reader: str) -> Split:
    """The one split of a file that is read from its start."""
    size = version.size if reader == "jsonl" else 0  # which counts bytes of the file
    return Split(version.path, start=0, stop=size, sha256="", reader=reader, version=version)


class Uncut(NamedTuple):
    """A reader that cuts no compressed file: of a damaged one, the rows before the damage are those
    of one piece."""

    reader: Cutter

    def cut(self, version: FileVersion) -> list[Split]:
        splits = self.reader.cut(version)
        if all(split.around is None for split in splits):
            return splits
        return [whole(version, splits[0].reader)]


class Whole(ABC):
    """A reader whose files are one split each, unless it has a ``cut`` of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The reader's name, as its splits have it."""

    def splits(self, path: str) -> list[Split]:
        return read_all(self, file_version.look(path))

    def cut(self, version: FileVersion) -> list[Split]:
        return [whole(version, self.name)]


def read_all(reader: Cutter, version: FileVersion, hold: int = 0) -> list[Split]:
    """The splits of a version, hashed; each byte is read once, but for those that ``cut`` looks at.

    Raises:
        ContainerError: the file is not what its name says.
        SurroundingsError: another process writes to it meanwhile.

    Args:
        hold: bytes of each split that may stay in memory, for whoever makes its part.
    """
    splits = reader.cut(version)
    known = [_known(split, split.version.hashed(hold)) for split in splits if split.version]
    if not version.is_fixed and _places(reader.cut(joined(known) or version)) != _places(splits):
        raise changed(version.path)
    return known


def _places(splits: Sequence[Split]) -> list[tuple[str, int, int]]:
    return [(split.reader, split.start, split.stop) for split in splits]


def _known(split: Split, version: FileVersion) -> Split:
    """A split whose bytes were read."""
    counts_lines = split.reader == "jsonl" and compression(version) is None
    lines = version.ends + (not version.whole) if counts_lines else None
    return replace(split, sha256=version.sha256, version=version, lines=lines)


def joined(splits: Sequence[Split]) -> FileVersion | None:
    """The version of a whole file, from those of its splits; None where there is none."""
    known = [split.version for split in splits if split.version is not None]
    if not known:
        return None
    pieces = {piece.start: piece for version in known for piece in version.pieces}
    return replace(known[0], pieces=tuple(pieces[start] for start in sorted(pieces)))


def lines_before(split: Split) -> int | None:
    """The lines of the file before the split, counted now, for a message that names one; None where
    that would take a transfer or is not known."""
    version = split.version
    is_plain = split.reader == "jsonl" and split.around is None
    if version is None or version.stored is not None or not is_plain:
        return None
    with contextlib.suppress(SurroundingsError):
        return version.range(0, split.start).hashed().ends
    return None


def is_there(split: Split) -> bool:
    """Whether a file on this machine still has the bytes of a split that were read."""
    version = split.version
    if version is None or version.stored is not None or not version.pieces:
        return True
    first, *more = [(piece.start, piece.stop) for piece in version.pieces]
    try:
        return split.sha256 in ("", version.range(*first, *more).hashed().sha256)
    except SurroundingsError:
        return False


@contextlib.contextmanager
def held(split: Split, folder: Path) -> Iterator[Split]:
    """A split while its part is made: its bytes are read once, and hashed as they pass.

    Args:
        folder: for what is too large for memory and does not lie on this machine.

    Raises:
        SurroundingsError: its file is another version by now, or its bytes are not those of its
            hash.
    """
    version = split.version
    if version is None or version.is_held or (version.sha256 and version.stored is None):
        yield split  # by a reader of another package, or read and hashed before
        return
    with contextlib.ExitStack() as stack:
        copy = None
        if version.stored is not None:
            import tempfile

            folder.mkdir(parents=True, exist_ok=True)
            copy = Path(stack.enter_context(tempfile.NamedTemporaryFile(dir=folder)).name)
        known = _known(split, version.hashed(hold=file_version.HELD, copy=copy))
        if split.sha256 not in ("", known.sha256):
            raise changed(split.path)
        yield known
