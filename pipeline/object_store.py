"""The port to places of bytes: folders, and the stores that fsspec knows (``s3://``, ``gs://``).

An object is never streamed to its name: it is made here, hashed, and put. Some stores decide puts
themselves: of two at once, they let one through. S3 has that as headers of a put
(``If-None-Match``, ``If-Match``). The store in memory is one process, where a lock does the same.
GCS and Azure have it too, but their packages for fsspec give no way to both, so builds there need
``--single-writer``. In a folder an object appears by a rename.
"""

import hashlib
import posixpath
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipeline.filesystem import is_refused, with_patience
from stages.errors import UsageError

_T = TypeVar("_T")
TRIES = 8  # to exchange an object that others exchange meanwhile


class Stat(NamedTuple):
    """What a store says of an object without reading it.

    Attributes:
        tag: names the content (ETag); empty where the store has no name for it.
        modified: when it was put, in seconds of the store's own clock; None where it does not say.
    """

    size: int
    tag: str
    modified: float | None = None


def _put_s3(filesystem: Any, path: str, content: bytes, tag: str | None) -> bool:
    try:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        filesystem.pipe_file(path, content, **condition)
    except FileNotFoundError:
        if tag is None:  # there is no bucket
            raise
        return False  # it was removed meanwhile
    except OSError as error:
        if not isinstance(error, FileExistsError) and not is_refused(error):
            raise
        return False
    return True


_one_process = threading.Lock()


def _put_memory(filesystem: Any, path: str, content: bytes, tag: str | None) -> bool:
    with _one_process:
        there = filesystem.isfile(path)
        if (content_tag(filesystem.cat_file(path)) if there else None) != tag:
            return False
        filesystem.pipe_file(path, content)
        return True


def content_tag(content: bytes) -> str:
    """The tag that S3 gives an object of one put; in memory we give the same."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


# How a kind of store is asked to put an object: its bytes, and the tag of what is there.
_DECIDING: dict[str, Callable[[Any, str, bytes, str | None], bool]] = {
    "s3": _put_s3,
    "s3a": _put_s3,
    "memory": _put_memory,
}
# Stores whose folders are only parts of names. To make one there could make a bucket.
_FLAT = set("s3 s3a gs gcs abfs abfss az adl oci oss r2 memory".split())
# S3 names an object by the MD5 of its bytes where it was one put; another has to be read back to be
# compared. A shard is about 100 MiB, from which on its library would send pieces.
_WHOLE = {"chunksize": 1 << 27}  # one put of twice as many bytes
_TAGS = ("ETag", "etag", "md5Hash")
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "created")


@dataclass
class Store:
    """Objects by name (``a/b.json``) under one address, or in a folder.

    What it cannot reach raises ``SurroundingsError``, a bucket that is not there ``UsageError``.

    Attributes:
        filesystem: of fsspec; ``root``: the path in it.
        shown: the address, without keys or signatures.
    """

    filesystem: Any
    root: str
    shown: str

    @property
    def _kinds(self) -> tuple[str, ...]:
        """The names by which fsspec knows the file system."""
        names = self.filesystem.protocol
        return (names,) if isinstance(names, str) else tuple(names)

    @property
    def conditions(self) -> bool:
        """Whether the store itself decides ``put_if``."""
        return not _DECIDING.keys().isdisjoint(self._kinds)

    @property
    def _has_folders(self) -> bool:
        return _FLAT.isdisjoint(self._kinds)

    def _at(self, name: str) -> str:
        return posixpath.join(self.root, name)

    def _written(self, name: str, write: Callable[[str], _T]) -> _T:
        """What ``write`` says of the path of an object, in a folder that is there."""

        def now() -> _T:
            path = self._at(name)
            if self._has_folders:
                self.filesystem.makedirs(posixpath.dirname(path), exist_ok=True)
            return write(path)

        return with_patience(f"{self.shown}/{name}", now, written=True)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """The bytes, or those of a range; None where there is no such object."""
        read = partial(self.filesystem.cat_file, self._at(name), start=start, end=end)
        found: bytes | None = self._looked(f"{self.shown}/{name}", read, None)
        return found

    def fetch(self, name: str, target: Path) -> bool:
        """Write the object to a file of this machine; False where there is none."""

        def fetched() -> bool:
            self.filesystem.get_file(self._at(name), str(target))
            return True

        return self._looked(f"{self.shown}/{name}", fetched, False)

    def put(self, name: str, content: bytes) -> None:
        """Write an object; whoever reads finds the old bytes or the new ones."""

        def sent(path: str) -> None:
            if not self._has_folders:
                self.filesystem.pipe_file(path, content)
                return
            new = f"{posixpath.dirname(path)}/.put-{uuid.uuid4().hex}"
            try:
                self.filesystem.pipe_file(new, content)
                self.filesystem.mv(new, path)
            except BaseException:
                with suppress(OSError):
                    self.filesystem.rm_file(new)
                raise

        self._written(name, sent)

    def put_file(self, name: str, source: Path) -> None:
        """Write an object from a file."""
        pieces = {} if {"s3", "s3a"}.isdisjoint(self._kinds) else _WHOLE
        self._written(name, lambda path: self.filesystem.put_file(str(source), path, **pieces))

    def put_if(self, name: str, content: bytes, tag: str | None) -> bool:
        """Write it, if what is there still has this tag, or, for None, if nothing is there: the
        store itself decides, of all who ask at once.

        Raises:
            UsageError: it cannot.
        """
        decides = next((_DECIDING[one] for one in self._kinds if one in _DECIDING), None)
        if decides is None:
            raise UsageError(f"{self.shown} has no conditional writes.", "Add --single-writer.")
        return self._written(name, lambda path: decides(self.filesystem, path, content, tag))

    def exchange(
        self, name: str, change: Callable[[bytes | None], bytes | None], single: bool = False
    ) -> bool:
        """Put what follows from what is there, decided by the store.

        Args:
            single: no other writer is there, as the user says; the store does not decide then.
            change: from the content, None where there is none, to the new one; None where nothing
                is to be put after all. It may be called several times.

        Returns:
            False where ``change`` gave None, or others were first each time.
        """
        for _ in range(TRIES):
            before = self.stat(name)  # first: what is read next is no older: an old tag only fails
            content = self.get(name) if before is not None else None
            if before is not None and content is None:
                continue
            new = change(content)
            if new is None:
                return False
            if single:
                self.put(name, new)
                return True
            # An answer that was lost is asked for again, and says that we ourselves were first.
            if self.put_if(name, new, before.tag if before else None) or self.get(name) == new:
                return True
        return False

    def _looked(self, shown: str, look: Callable[[], _T], missing: _T) -> _T:
        """What the store says now; ``missing`` where nothing is there."""

        def now() -> _T:
            self.filesystem.invalidate_cache()
            with suppress(FileNotFoundError):
                return look()
            return missing

        return with_patience(shown, now)

    def stat(self, name: str) -> Stat | None:
        """Of one object; None where there is none."""

        def one() -> Stat | None:
            info = self.filesystem.info(self._at(name))
            return self._said(info) if info["type"] == "file" else None

        return self._looked(f"{self.shown}/{name}", one, None)

    def list(self, under: str = "") -> Mapping[str, Stat]:
        """Every object whose name begins with ``under`` and a slash, or every object."""

        def below() -> dict[str, Stat]:
            found = self.filesystem.find(self._at(under) if under else self.root, detail=True)
            start = len(self.root) + 1 if self.root else 0
            return {path[start:]: self._said(one) for path, one in found.items() if path[start:]}

        return self._looked(self.shown, below, {})

    def names(self) -> tuple[str, ...]:
        """The first parts of all names, sorted: one request for each thousand of them."""

        def first() -> tuple[str, ...]:
            found = (str(path).strip("/") for path in self.filesystem.ls(self.root, detail=False))
            # A console makes a folder as an empty object with the name of the folder itself.
            below = (path for path in found if path != self.root.strip("/"))
            return tuple(sorted(map(posixpath.basename, below)))

        return self._looked(self.shown, first, ())

    def delete(self, *names: str) -> None:
        """Remove objects; those that are not there do not matter."""

        def removed() -> None:
            for name in names:
                with suppress(FileNotFoundError):
                    self.filesystem.rm_file(self._at(name))

        with_patience(self.shown, removed, written=True)

    def _said(self, info: Mapping[str, Any]) -> Stat:
        tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
        if not tag and "memory" in self._kinds:
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
