"""Opening files that may be compressed, and hashes of files."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TypeAlias

import zstandard

from stages.contract import Split
from stages.errors import ContainerError
from stages.files import file_version, version_bytes
from stages.files.file_version import FileVersion
from stages.files.inflate import Inflated
from stages.files.piece_text import PieceText

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


@contextmanager
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
                yield io.BufferedReader(Inflated(file, kind, salvage), CHUNK)
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ContainerError(
            f"{path_of(source)} is damaged: {error}.",
            "Fetch it again; none of its rows can be trusted. --salvage keeps those before the "
            "damage.",
        ) from error


@contextmanager
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
    return raw.damage if isinstance(raw, Inflated) else None


def expansion(file: IO[bytes]) -> float:
    """Decompressed bytes per byte of the file, as far as an opened stream was read."""
    raw = getattr(file, "raw", None)
    return raw.bytes_out / max(raw.bytes_in, 1) if isinstance(raw, Inflated) else 1.0


def version_of(split: Split) -> FileVersion:
    """The version that a split was cut from.

    Raises:
        SurroundingsError: the split has none, and the file has changed since.
    """
    if split.version is not None:
        return split.version
    current = file_version.take(split.path)
    if current.sha256 != split.sha256:
        raise version_bytes.changed(split.path)
    return current


def name_in_messages(split: Split) -> str:
    """The name of the file in a message about its damage.

    With ``--salvage`` the message is stored in a part, which depends on the bytes of the file alone
    and not on its path.
    """
    return "The file" if split.salvage else split.path
