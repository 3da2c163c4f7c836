"""Files to a store and back, and copies of objects in the cache of this machine, fetched when they
are asked for: what arrived has the hash that it is said to have."""

import hashlib
import os
from pathlib import Path

from pipeline.stores import Stat, Store
from stages.errors import DataError, SurroundingsError
from stages.files import file_hash

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
