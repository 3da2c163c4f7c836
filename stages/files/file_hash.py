"""sha256 of files. What a build names and compares is the bytes of files, and it hashes them here.

What is hashed while it is read for another reason stays with its reader: see ``file_version``.
"""

import functools
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

from stages.errors import IrregularError

_BLOCK = 1 << 20


def sha256(path: str | Path) -> str:
    """The hash of a file's bytes, which are read in blocks.

    Raises:
        OSError: it cannot be read.
    """
    with required(Path(path)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copied(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy a stream to its end, and give the hash of what was copied: it cannot be read again."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


@functools.lru_cache(maxsize=4)
def of_content(content: bytes) -> str:
    """Hash of a file that is in memory as a whole, a ``tokenizer.json`` for instance.

    It is asked for often, and computed once: Python keeps by itself which bytes it has seen.
    """
    return hashlib.sha256(content).hexdigest()


def keep(path: Path, content: bytes) -> None:
    """Put a file into a cache, whole or not at all; without a writable cache it is made again."""
    with suppress(OSError), replacing(path) as new:
        new.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose file takes the place of ``path`` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.urandom(16).hex()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):  # a read-only disk refuses this even where there is no such file
            temporary.unlink()


# Whether a file is still the one that was read, without reading it again.
#
# Every write, cut, rename or replacement of a file changes what the file system says of it: its
# inode, its size or the time of its last change. That time comes from a clock that ticks, so two
# changes within one tick have the same time: who has read a file within a tick of its last change
# must read it again to be sure.


_SECOND = 1_000_000_000
_TICK = _SECOND // 10  # longer than the ticks of the clock that kernels take such times from
COARSE = 2 * _SECOND  # some file systems keep whole seconds, or every other one


@dataclass(frozen=True, slots=True)
class FileState:
    """What the file system says of a file; times in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    def settled(self) -> bool:
        """Whether a change from now on gives the file another state."""
        return _past(self.changed)

    def dated(self) -> bool:
        """Whether a write from now on gives the file another time of modification."""
        return _past(self.modified)

    def written_as(self, other: "FileState") -> bool:
        """Whether nothing was written between two states of one file. Another name for it, the
        removal of one, and a change of mode or owner leave this as it is."""
        return replace(self, changed=0) == replace(other, changed=0)


def _past(moment: int) -> bool:
    tick = _TICK if moment % _SECOND else COARSE
    return time.time_ns() - moment > tick


def of(path: str | Path | IO[bytes]) -> FileState:
    """The state of a file, or of one that is open, whatever its name names by now.

    Raises:
        OSError: there is none.
    """
    said = os.stat(path) if isinstance(path, str | Path) else os.fstat(path.fileno())
    return FileState(said.st_dev, said.st_ino, said.st_size, said.st_mtime_ns, said.st_ctime_ns)


# Hashes of files that have not changed since they were hashed, as their size and times say.
#
# A file that is written twice within a tick of the clock has the times of the first writing, so a
# hash is only kept of a file that had been left alone for a while when it was hashed.


_VERSION = 2

Identity: TypeAlias = tuple[int, ...]


def identity(path: str | Path) -> Identity:
    """What changes when a file is written or replaced: device, inode, size, and both times.

    Raises:
        OSError: there is no such file.
    """
    return astuple(of(path))


class KnownHashes:
    """The hashes kept in one file. One that is damaged or missing holds none.

    Args:
        path: of that file.
        trusted: whether what it holds is believed; where not, every file is hashed.
    """

    def __init__(self, path: Path, trusted: bool = True) -> None:
        self._path = path
        self._kept = _read(path) if trusted else {}
        self._new: dict[str, tuple[Identity, str]] = {}

    def of(self, path: str | Path) -> str | None:
        """The hash of a file that has not changed since; None where it is not known."""
        kept = self._kept.get(_key(path))
        with suppress(OSError):
            return kept[1] if kept and identity(path) == kept[0] else None
        return None

    def sha256(self, path: str | Path) -> str:
        """The hash of a file, which is read where it is not known.

        Raises:
            OSError: it cannot be read.
        """
        known = self.of(path)
        if known is not None:
            return known
        began, before = time.time_ns(), identity(path)
        found = sha256(path)
        self.note(path, found, before, began)
        return found

    def note(self, path: str | Path, sha256: str, before: Identity, began: int) -> None:
        """Keep a hash that was computed.

        Args:
            before: the file's identity before it was read; ``began``: when that was, in
                nanoseconds since the epoch.
        """
        if max(before[-2:]) + COARSE <= began and identity(path) == before:
            self._new[_key(path)] = (before, sha256)

    def keep(self, path: str | Path, sha256: str, seen: FileState, linked: bool = False) -> None:
        """Keep a hash of a file that nobody has written to since.

        Args:
            seen: its state when it was hashed.
            linked: this program has removed another name of it since, so that its time of change
                says nothing; its time of modification, which a writer can set, must do.
        """
        with suppress(OSError):
            now = of(path)
            if (now.written_as(seen) if linked else now == seen) and now.dated():
                self._new[_key(path)] = (astuple(now), sha256)

    def save(self) -> None:
        """Write the hashes down, where there are new ones; the old ones that were not asked for
        stay. Without a writable cache every build hashes its files again."""
        if not self._new:
            return
        files = {name: [*ident, sha] for name, (ident, sha) in (self._kept | self._new).items()}
        content = {"version": _VERSION, "files": files, "sha256": _seal(files)}
        keep(self._path, json.dumps(content).encode())


def _key(path: str | Path) -> str:
    """What a file is noted as: not its path, which may have what is to be shown nowhere."""
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()


def _seal(files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, tuple[Identity, str]]:
    try:
        content = json.loads(path.read_bytes())
        if content["version"] != _VERSION or content["sha256"] != _seal(content["files"]):
            return {}
        return {name: (tuple(ident), sha) for name, (*ident, sha) in content["files"].items()}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


# What is opened by a name that others chose is a regular file. A pipe waits for ever for somebody
# who writes, a device may never end, and neither can be read a second time.


P = TypeVar("P", str, Path)


def required(path: P) -> P:
    """The same path, to be opened now. Where nothing is there, who opens it says so.

    Raises:
        IrregularError: something else than a file is there.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return path
    if not stat.S_ISREG(mode):
        raise IrregularError(
            f"{path} is not a regular file.",
            "Give a file: a pipe, a socket, a device or a folder cannot be read as one.",
        )
    return path


def require_all(folder: Path) -> None:
    """The same of all that lies in a folder, but for other folders; raises as ``required``."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            required(path)
