"""Where bytes lie: folders, stores that fsspec knows, the hub; data is read from them in ranges.

    store = open_store("s3://bucket/place")
    store.put("manifest.json", content)          one request, whole or not at all
    store.put_if_absent("lock", content)         False where somebody was first
    exchange(store, "current", change)           what is there, for what follows from it

An object is never streamed to its name: it is made here, hashed, and put. Two calls are decided by
the store itself, of all who make them at once: ``put_if_absent`` and ``put_if_match``. Where a
store has no such calls, ``conditions`` is False, and both raise ``UsageError``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from pipeline.secrets import redacted

# Of two letters or more; pathlib drops one of the slashes.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
TRIES = 8  # to exchange an object that others exchange meanwhile


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says of an object without reading it.

    Attributes:
        tag: names the content (ETag); empty where the store has no name for it.
        modified: when it was put, in seconds of the store's own clock; None where it does not say.
    """

    size: int
    tag: str
    modified: float | None = None


class Store(Protocol):
    """Objects by name (``a/b.json``) under one address.

    What it cannot reach raises ``SurroundingsError``, a bucket that is not there ``UsageError``.

    Attributes:
        shown: the address, without keys or signatures.
        conditions: whether the store itself decides the two calls with conditions.
    """

    @property
    def shown(self) -> str: ...
    @property
    def conditions(self) -> bool: ...

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """The bytes, or those of a range; None where there is no such object."""

    def fetch(self, name: str, target: Path) -> bool:
        """Write the object to a file of this machine; False where there is none."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object; whoever reads finds the old bytes or the new ones."""

    def put_file(self, name: str, source: Path) -> None:
        """The same from a file."""

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write it, unless it is there."""

    def put_if_match(self, name: str, content: bytes, tag: str) -> bool:
        """Write it, if what is there still has this tag."""

    def stat(self, name: str) -> Stat | None:
        """Of one object; None where there is none."""

    def list(self, under: str = "") -> Mapping[str, Stat]:
        """Every object whose name begins with ``under`` and a slash, or every object."""

    def names(self) -> tuple[str, ...]:
        """The first parts of all names, sorted: one request for each thousand of them."""

    def delete(self, *names: str) -> None:
        """Remove objects; those that are not there do not matter."""


def exchange(
    store: Store, name: str, change: Callable[[bytes | None], bytes | None], single: bool = False
) -> bool:
    """Put what follows from what is there, decided by the store.

    Args:
        single: no other writer is there, as the user says; the store does not decide then.
        change: from the content, None where there is none, to the new one; None where nothing is to
            be put after all. It may be called several times.

    Returns:
        False where ``change`` gave None, or others were first each time.
    """
    for _ in range(TRIES):
        before = store.stat(name)  # first: what is read next is no older, so an old tag only fails
        content = store.get(name) if before is not None else None
        if before is not None and content is None:
            continue
        new = change(content)
        if new is None:
            return False
        if single:
            store.put(name, new)
            return True
        if before is None:
            done = store.put_if_absent(name, new)
        else:
            done = store.put_if_match(name, new, before.tag)
        # An answer that was lost is asked for again, and then says that we ourselves were first.
        if done or store.get(name) == new:
            return True
    return False


def address_of(path: str | PathLike[str]) -> str:
    """The address that a path is, also where pathlib dropped a slash of it; empty where it is a
    path of this machine."""
    text = fspath(path)
    if _ADDRESS.match(text) is None or text.lower().startswith("file:"):
        return ""
    return _ADDRESS.sub(r"\1://", text, count=1)


def is_address(path: str | PathLike[str]) -> bool:
    """Whether it names a place in a store."""
    return bool(address_of(path))


def open_store(address: str | PathLike[str]) -> Store:
    """The store at an address, or in a folder; nothing is asked of it yet.

    Raises:
        UsageError: fsspec knows none, or its package is not installed.
    """
    url = address_of(address)
    if not url:
        from pipeline.stores.filesystem import FolderStore

        text = fspath(address)
        return FolderStore(Path(unquote(urlsplit(text).path) if "://" in text else text))
    from pipeline.stores.filesystem import filesystem_of
    from pipeline.stores.objects import ObjectStore

    filesystem, root = filesystem_of(url)
    return ObjectStore(filesystem, root.rstrip("/"), redacted(url).rstrip("/"))


def shown(path: str | PathLike[str]) -> str:
    """A path or an address, as messages say it: without keys and signatures."""
    return redacted(address_of(path) or fspath(path))
