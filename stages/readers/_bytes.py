"""Opening what may be compressed, and naming bytes by their hash."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import zstandard

from stages.errors import ContainerError, SurroundingsError

CHUNK = 1 << 20


def is_compressed(path: str) -> bool:
    """Whether the suffix says gzip or zstandard."""
    return path.endswith((".gz", ".zst"))


class _Zstandard(io.RawIOBase):
    """Frames one after the other; unlike the library's own reader, notices that one is cut off."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._started = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def _more(self) -> bool:
        """Decompress the next piece; False at the end of the file."""
        if self._frame.eof:
            compressed = self._frame.unused_data
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._started = False
        else:
            compressed = b""
        compressed = compressed or self._file.read(CHUNK)
        if not compressed:
            if self._started:
                raise EOFError("the last frame is cut off")
            return False
        self._started = True
        self._ready = memoryview(self._frame.decompress(compressed))
        return True

    def readinto(self, buffer: Any) -> int:
        while not len(self._ready):
            if not self._more():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open for reading, decompressed.

    Raises:
        ContainerError: the compressed stream is damaged or cut off; rows before the damage cannot
            be trusted either, since only the checksum at the end would vouch for them.
    """
    try:
        with open(path, "rb") as file:
            if path.endswith(".gz"):
                with gzip.open(file, "rb") as plain:
                    yield io.BufferedReader(plain, CHUNK)
            elif path.endswith(".zst"):
                yield io.BufferedReader(_Zstandard(file), CHUNK)
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise ContainerError(
            f"{path} is damaged: {error}.", "Fetch it again; none of its rows can be trusted."
        ) from error


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


def changed(path: str) -> SurroundingsError:
    """The error for an input whose bytes differ from those that were planned over."""
    return SurroundingsError(
        f"{path} changed while the build was reading it.", "Build again when nobody writes to it."
    )
