"""Where bytes lie: folders, stores that fsspec knows, the hub; data is read from them in ranges.

store = open_store("s3://bucket/place")
store.put("manifest.json", content)          one request, whole or not at all
store.put_if("lock", content, None)          False where somebody was first
store.exchange("current", change)            what is there, for what follows from it
"""

import hashlib
import os
import re
from os import PathLike, fspath
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipeline.object_store import Stat as Stat
from pipeline.object_store import Store as Store
from pipeline.secrets import redacted
from stages.errors import DataError, SurroundingsError
from stages.files import file_hash

# Of two letters or more; pathlib drops one of the slashes.
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def address_of(path: str | PathLike[str]) -> str:
    """The address that a path is, also where pathlib dropped a slash of it; empty where it is a
    path of this machine."""
    text = fspath(path)
    if ADDRESS.match(text) is None or text.lower().startswith("file:"):
        return ""
    return ADDRESS.sub(r"\1://", text, count=1)


def is_address(path: str | PathLike[str]) -> bool:
    """Whether it names a place in a store."""
    return bool(address_of(path))


def open_store(address: str | PathLike[str]) -> Store:
    """The store at an address, or in a folder; nothing is asked of it yet.

    Raises:
        UsageError: fsspec knows none, or its package is not installed.
    """
    from pipeline.filesystem import filesystem_of

    url, text = address_of(address), fspath(address)
    if url:
        filesystem, root = filesystem_of(url)
        return Store(filesystem, root.rstrip("/"), redacted(url).rstrip("/"))
    from fsspec.implementations.local import LocalFileSystem

    folder = unquote(urlsplit(text).path) if "://" in text else text
    return Store(LocalFileSystem(), os.path.abspath(folder), folder)


def shown(path: str | PathLike[str]) -> str:
    """A path or an address, as messages say it: without keys and signatures."""
    return redacted(address_of(path) or fspath(path))


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


def sent(store: Store, name: str, source: Path, sha256: str, there: Stat | None) -> Stat:
    """The same, unless it is ``there`` with these bytes."""
    if there is not None and holds(store, name, there, source, sha256):
        return there
    return send(store, name, source, sha256)


def fetch(store: Store, name: str, target: Path, sha256: str | None) -> Path:
    """The local copy of an object: fetched unless it is there, and of the hash that was asked for.

    Args:
        sha256: None where nothing says it; then it is fetched each time.

    Raises:
        DataError: there is no such object, or it has other bytes.
    """
    if sha256 is not None and target.is_file():
        return target  # it got its name when its hash was known
    with file_hash.replacing(target) as new:
        if not store.fetch(name, new):
            raise DataError(f"{store.shown}/{name} is missing.", "Build it again.")
        if sha256 is not None and file_hash.sha256(new) != sha256:
            raise DataError(f"{store.shown}/{name} has changed since the build.", "Build it again.")
    return target


FETCHED = "fetched"  # in the cache


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/posttrain-pipeline``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "posttrain-pipeline"


def copies_of(store: Store, key: str) -> Path:
    """The folder of the cache for copies of a store's objects.

    Args:
        key: of what they are, so that the folder never holds two versions of one.
    """
    name = hashlib.sha256(f"{store.shown}\0{key}".encode()).hexdigest()[:32]
    return default_cache() / FETCHED / name


def fetch_all(store: Store, folder: Path) -> Path:
    """Every object, as it is there now, into a folder; one list."""
    for name in store.list():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(name, target)
    return folder
