"""One version of an object in a store: ranges of its bytes, and never of another version.

Workers fetch what they read. What the driver looks at to plan and to detect formats is kept in the
cache, by the object's address and version, so that it is fetched once and not by every process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.stores import pieces, ranges
from pipeline.stores.filesystem import with_patience
from stages.files.version_bytes import changed

BLOCK = 1 << 16  # bytes that are looked at, at least
_MEMORY = 1 << 10  # blocks
_blocks: dict[tuple[str, int], bytes] = {}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What ``stages.files.file_version.Stored`` asks for.

    Attributes:
        url: with all that a request needs; it is not shown.
        path: in the file system of the URL; ``shown``: for messages.
        version: as the store gives it.
        folder: of the cache.
    """

    url: str = field(repr=False)
    path: str = field(repr=False)
    shown: str
    version: str
    size: int
    folder: str

    @property
    def key(self) -> str:
        """Names the version."""
        text = "\0".join((self.path, self.version, str(self.size)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, start: int, stop: int) -> bytes:
        """A range of its bytes, fetched.

        Raises:
            SurroundingsError: it cannot be fetched, or is another version by now.
        """
        if stop <= start:
            return b""
        return with_patience(self.url, self._fetched, start, stop)

    def _fetched(self, start: int, stop: int) -> bytes:
        content = ranges.fetch(self.url, self.path, start=start, stop=stop, version=self.version)
        if content is None:
            raise changed(self.shown)
        if len(content) != stop - start:
            raise ConnectionError(f"{len(content)} bytes of {stop - start} arrived")
        return content

    def look(self, start: int, stop: int) -> bytes:
        """A few bytes, from the cache where somebody has looked at them before; raises what
        ``read`` does."""
        first, last = start // BLOCK, -(-stop // BLOCK)
        blocks = {number: self._kept(number) for number in range(first, last)}
        lacking = [number for number, block in blocks.items() if block is None]
        if lacking:
            begin = lacking[0] * BLOCK
            content = self.read(begin, min((lacking[-1] + 1) * BLOCK, self.size))
            for number in range(lacking[0], lacking[-1] + 1):
                at = number * BLOCK - begin
                blocks[number] = content[at : at + BLOCK]
                self._keep(number, content[at : at + BLOCK])
        joined = b"".join(block or b"" for block in blocks.values())
        return joined[start - first * BLOCK : stop - first * BLOCK]

    def _file(self, name: str) -> Path:
        return Path(self.folder) / self.key[:2] / f"{self.key}.{name}"

    def _kept(self, number: int) -> bytes | None:
        known = _blocks.get((self.key, number))
        return known if known is not None else pieces.read(self._file(f"{number}.block"))

    def _keep(self, number: int, block: bytes) -> None:
        while len(_blocks) >= _MEMORY:
            _blocks.pop(next(iter(_blocks)))
        _blocks[self.key, number] = block
        pieces.write(self._file(f"{number}.block"), block)

    def noted(self, what: str, find: Callable[[], list[int]]) -> list[int]:
        """Numbers that follow from its bytes, from the cache where they were found before."""
        path = self._file(f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.note")
        known = pieces.read(path)
        if known is None:
            known = json.dumps(find()).encode()
            pieces.write(path, known)
        numbers: list[int] = json.loads(known)
        return numbers
