"""The port to the stores that fsspec knows: ``s3://``, ``gs://``, ``abfs://``, ``memory://``.

Some decide puts themselves: of two at once, they let one through. S3 has that as headers of a put
(``If-None-Match``, ``If-Match``). The store in memory is one process, where a lock does the same.
GCS and Azure have it too, but their packages for fsspec give no way to both, so builds there need
``--single-writer``.
"""

import hashlib
import os
import posixpath
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.stores import Stat, Store
from pipeline.stores.filesystem import is_refused, with_patience
from stages.errors import DataError, SurroundingsError, UsageError
from stages.files import file_hash

_T = TypeVar("_T")


class Conditions(Protocol):
    """How one kind of store is asked."""

    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        """Put an object that is not there; False where it is."""

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        """Put an object in place of the one with this tag; False where that is another one."""


class _S3:
    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        return self._put(filesystem, path, content, IfNoneMatch="*")

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        return self._put(filesystem, path, content, IfMatch=tag)

    def _put(self, filesystem: Any, path: str, content: bytes, **condition: str) -> bool:
        try:
            filesystem.pipe_file(path, content, **condition)
        except FileNotFoundError:
            if "IfMatch" in condition:  # it was removed meanwhile, or there is no bucket
                return False
            raise
        except FileExistsError:
            return False
        except OSError as error:
            if not is_refused(error):
                raise
            return False
        return True


class _Memory:
    _lock = threading.Lock()

    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        with self._lock:
            if filesystem.isfile(path):
                return False
            filesystem.pipe_file(path, content)
            return True

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        with self._lock:
            if not filesystem.isfile(path) or content_tag(filesystem.cat_file(path)) != tag:
                return False
            filesystem.pipe_file(path, content)
            return True


def content_tag(content: bytes) -> str:
    """The tag that S3 gives an object of one put; in memory we give the same."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


_KINDS: dict[str, Conditions] = {"s3": _S3(), "s3a": _S3(), "memory": _Memory()}


def deciding(filesystem: Any) -> Conditions | None:
    """How a file system is asked; None where it cannot be."""
    return next((_KINDS[name] for name in protocols(filesystem) if name in _KINDS), None)


def protocols(filesystem: Any) -> tuple[str, ...]:
    """The names by which fsspec knows a file system."""
    names = filesystem.protocol
    return (names,) if isinstance(names, str) else tuple(names)


# Stores whose folders are only parts of names. To make one there could make a bucket.
_FLAT = set("s3 s3a gs gcs abfs abfss az adl oci oss r2 memory".split())
# S3 names an object by the MD5 of its bytes where it was one put; another has to be read back to be
# compared. A shard is about 100 MiB, from which on its library would send pieces.
_WHOLE = {"chunksize": 1 << 27}  # one put of twice as many bytes
_TAGS = ("ETag", "etag", "md5Hash")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "created")


@dataclass
class ObjectStore:
    """A place in a store; see ``stores.Store``.

    Attributes:
        filesystem: of fsspec; ``root``: the path in it.
    """

    filesystem: Any
    root: str
    shown: str

    @property
    def conditions(self) -> bool:
        return deciding(self.filesystem) is not None

    def at(self, name: str) -> str:
        """The path of an object in the file system."""
        return posixpath.join(self.root, name)

    def _there(self, name: str) -> str:
        return f"{self.shown}/{name}"

    def make_folder(self, name: str) -> None:
        """What an object lies in, where the store has folders."""
        if not _FLAT.intersection(protocols(self.filesystem)):
            self.filesystem.makedirs(posixpath.dirname(self.at(name)), exist_ok=True)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        def got() -> bytes | None:
            with suppress(FileNotFoundError):
                content: bytes = self.filesystem.cat_file(self.at(name), start=start, end=end)
                return content
            return None

        return with_patience(self._there(name), got)

    def fetch(self, name: str, target: Path) -> bool:
        def fetched() -> bool:
            try:
                self.filesystem.get_file(self.at(name), str(target))
            except FileNotFoundError:
                return False
            return True

        return with_patience(self._there(name), fetched)

    def put(self, name: str, content: bytes) -> None:
        def sent() -> None:
            self.make_folder(name)
            self.filesystem.pipe_file(self.at(name), content)

        with_patience(self._there(name), sent, written=True)

    def put_file(self, name: str, source: Path) -> None:
        pieces = _WHOLE if {"s3", "s3a"}.intersection(protocols(self.filesystem)) else {}

        def sent() -> None:
            self.make_folder(name)
            self.filesystem.put_file(str(source), self.at(name), **pieces)

        with_patience(self._there(name), sent, written=True)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        kind = self._deciding()
        self.make_folder(name)
        return with_patience(
            self._there(name), kind.create, self.filesystem, self.at(name), content, written=True
        )

    def put_if_match(self, name: str, content: bytes, tag: str) -> bool:
        kind, path = self._deciding(), self.at(name)
        return with_patience(
            self._there(name), kind.replace, self.filesystem, path, content, tag, written=True
        )

    def _deciding(self) -> Conditions:
        kind = deciding(self.filesystem)
        if kind is None:
            raise UsageError(f"{self.shown} has no conditional writes.", "Add --single-writer.")
        return kind

    def _looked(self, shown: str, look: Callable[[], _T], missing: _T) -> _T:
        """What the store says now; ``missing`` where nothing is there."""

        def now() -> _T:
            self.filesystem.invalidate_cache()
            with suppress(FileNotFoundError):
                return look()
            return missing

        return with_patience(shown, now)

    def stat(self, name: str) -> Stat | None:
        def one() -> Stat | None:
            info = self.filesystem.info(self.at(name))
            return self._said(info) if info["type"] == "file" else None

        return self._looked(self._there(name), one, None)

    def list(self, under: str = "") -> Mapping[str, Stat]:
        def below() -> dict[str, Stat]:
            found = self.filesystem.find(self.at(under) if under else self.root, detail=True)
            start = len(self.root) + 1 if self.root else 0
            return {path[start:]: self._said(one) for path, one in found.items() if path[start:]}

        return self._looked(self.shown, below, {})

    def names(self) -> tuple[str, ...]:
        def first() -> tuple[str, ...]:
            found = (str(path).strip("/") for path in self.filesystem.ls(self.root, detail=False))
            # A console makes a folder as an empty object with the name of the folder itself.
            below = (path for path in found if path != self.root.strip("/"))
            return tuple(sorted(map(posixpath.basename, below)))

        return self._looked(self.shown, first, ())

    def delete(self, *names: str) -> None:
        def removed() -> None:
            for name in names:
                with suppress(FileNotFoundError):
                    self.filesystem.rm_file(self.at(name))

        with_patience(self.shown, removed, written=True)

    def _said(self, info: Mapping[str, Any]) -> Stat:
        tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
        if not tag and "memory" in protocols(self.filesystem):
            tag = content_tag(self.filesystem.cat_file(info["name"]))
        return Stat(int(info["size"]), tag.strip('"'), _seconds(info))


def _seconds(info: Mapping[str, Any]) -> float | None:
    """When an object was put, in seconds since 1970."""
    for key in _TIMES:
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str) and value:
            with suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return None


# Files to a store and back, and copies of objects in the cache of this machine, fetched when they
# are asked for: what arrived has the hash that it is said to have.


_BLOCK = 1 << 24  # bytes that are read back at a time


def holds(store: Store, name: str, there: Stat, source: Path, sha256: str) -> bool:
    """Whether an object has the bytes of a file.

    A store names an object of one put by the MD5 of its bytes: where the tag is that of the file,
    the bytes are the same. Any other object is read back and hashed.
    """
    if there.size != source.stat().st_size:
        return False
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return there.tag == digest.hexdigest() or sha256_of(store, name, there.size) == sha256


def sha256_of(store: Store, name: str, size: int) -> str:
    """The hash of an object, read in ranges; empty where there is no such object."""
    digest = hashlib.sha256()
    for start in range(0, size, _BLOCK):
        block = store.get(name, start, min(start + _BLOCK, size))
        if block is None:
            return ""
        digest.update(block)
    return digest.hexdigest()


def send(store: Store, name: str, source: Path, sha256: str) -> Stat:
    """Put a file, and require that what is there has its bytes.

    Raises:
        SurroundingsError: it has others.
    """
    store.put_file(name, source)
    there = store.stat(name)
    if there is None or not holds(store, name, there, source, sha256):
        raise SurroundingsError(
            f"{store.shown}/{name} does not have the bytes that were sent.",
            "Run again; what has arrived is not sent again.",
        )
    return there


def fetch(store: Store, name: str, target: Path, sha256: str | None) -> Path:
    """The local copy of an object: fetched unless it is there, and of the hash that was asked for.

    Args:
        sha256: None where nothing says it; then it is fetched each time.

    Raises:
        DataError: there is no such object, or it has other bytes.
    """
    if sha256 is not None and target.is_file():
        return target  # it got its name when its hash was known
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        if not store.fetch(name, new):
            raise DataError(f"{store.shown}/{name} is missing.", "Build it again.")
        if sha256 is not None and file_hash.sha256(new) != sha256:
            raise DataError(f"{store.shown}/{name} has changed since the build.", "Build it again.")
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return target


FETCHED = "fetched"  # in the cache


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/posttrain-pipeline``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "posttrain-pipeline"


@dataclass(frozen=True)
class Copies:
    """The objects of a store, and the folder of their copies.

    Attributes:
        folder: named by what the copies are of, so that it never holds two versions of one.
    """

    store: Store
    folder: Path

    @classmethod
    def of(cls, store: Store, key: str) -> "Copies":
        """Those in the cache; ``key``: of the version."""
        name = hashlib.sha256(f"{store.shown}\0{key}".encode()).hexdigest()[:32]
        return cls(store, default_cache() / FETCHED / name)

    def path(self, name: str, sha256: str | None) -> Path:
        """The copy of a file; ``sha256``: of its bytes, None where nothing says it.

        Raises:
            DataError: there is no such object, or it has other bytes.
        """
        return fetch(self.store, name, self.folder / name, sha256)


def fetch_all(store: Store, folder: Path) -> Path:
    """Every object, as it is there now, into a folder; one list."""
    for name in store.list():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(name, target)
    return folder
