"""Opening what may be compressed, and naming bytes by their hash."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import zstandard

from stages.contract import Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers._inflate import Inflated

CHUNK = 1 << 20
_MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}


def compression(path: str) -> str | None:
    """``gz`` or ``zst``: by the suffix, else by the first bytes; None for neither."""
    for kind in _MAGIC.values():
        if path.lower().endswith(f".{kind}"):
            return kind
    with open(path, "rb") as file:
        head = file.read(4)
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


@contextmanager
def opened(path: str, salvage: bool = False) -> Iterator[IO[bytes]]:
    """Open for reading, decompressed, in memory that does not grow with the file.

    Args:
        salvage: end quietly at a damage (see ``damage_of``) instead of raising.

    Raises:
        ContainerError: the compressed stream is damaged or cut off; rows before the damage cannot
            be trusted either, since only the checksum at the end would vouch for them.
    """
    kind = compression(path)
    try:
        with open(path, "rb", buffering=CHUNK) as file:
            if kind is None:
                yield file
            else:
                yield io.BufferedReader(Inflated(file, kind, salvage), CHUNK)
    except (EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ContainerError(
            f"{path} is damaged: {error}.",
            "Fetch it again; none of its rows can be trusted. --salvage keeps those before the "
            "damage.",
        ) from error


def damage_of(file: IO[bytes]) -> str | None:
    """What ended an opened stream too early; None when nothing did."""
    raw = getattr(file, "raw", None)
    return raw.damage if isinstance(raw, Inflated) else None


def expansion(file: IO[bytes]) -> float:
    """Bytes that an opened stream has given for each byte of its file, so far."""
    raw = getattr(file, "raw", None)
    return raw.given / max(raw.taken, 1) if isinstance(raw, Inflated) else 1.0


def sha256_of(path: str, start: int = 0, stop: int | None = None) -> str:
    """Hash of a range of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        file.seek(start)
        left = -1 if stop is None else stop - start
        while left and (chunk := file.read(CHUNK if left < 0 else min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk) if left > 0 else 0
    return digest.hexdigest()


class Range(io.RawIOBase):
    """A range of a file as a stream that hashes what it gives."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  # closed with this object
        self._file.seek(start)
        self._left = stop - start
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._file.read(min(len(buffer), self._left))
        self._left -= len(chunk)
        self._digest.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if hasattr(self, "_file"):  # not when it could not be opened
            self._file.close()
        super().close()

    @property
    def sha256(self) -> str:
        """Of the bytes given so far."""
        return self._digest.hexdigest()


def told(split: Split) -> str:
    """What a message about a file's damage calls it.

    A part keeps the damage that ended it, and depends on bytes alone: there the file has no name.
    """
    return "The file" if split.salvage else split.path


def changed(path: str) -> SurroundingsError:
    """The error for an input whose bytes differ from those that were planned over."""
    return SurroundingsError(
        f"{path} changed while the build was reading it.", "Build again when nobody writes to it."
    )
