"""Splits of a file before and after their bytes were read.

A reader cuts a version of a file, of which it reads little. Whoever makes the part of a split reads
its bytes, once: from then on they are known by their hash.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stages.contract import Cutter, Split
from stages.errors import SurroundingsError
from stages.files import content, file_version
from stages.files.file_version import FileVersion
from stages.files.version_bytes import changed


def whole(version: FileVersion, reader: str) -> Split:
    """The one split of a file that is read from its start."""
    size = version.size if reader == "jsonl" else 0  # which counts bytes of the file
    return Split(version.path, start=0, stop=size, sha256="", reader=reader, version=version)


@dataclass(frozen=True, slots=True)
class Uncut:
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
    counts_lines = split.reader == "jsonl" and content.compression(version) is None
    lines = version.line_count if counts_lines else None
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
