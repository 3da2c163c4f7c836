"""Copies of objects in the cache of this machine: fetched when they are asked for, whole or not at
all."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from pipeline.stores import Store, transfer

FOLDER = "fetched"  # in the cache


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
    def of(cls, store: Store, key: str) -> Copies:
        """Those in the cache; ``key``: of the version."""
        name = hashlib.sha256(f"{store.shown}\0{key}".encode()).hexdigest()[:32]
        return cls(store, default_cache() / FOLDER / name)

    def path(self, name: str, sha256: str | None) -> Path:
        """The copy of a file; ``sha256``: of its bytes, None where nothing says it.

        Raises:
            DataError: there is no such object, or it has other bytes.
        """
        return transfer.fetch(self.store, name, self.folder / name, sha256)


def fetch_all(store: Store, folder: Path) -> Path:
    """Every object, as it is there now, into a folder; one list."""
    for name in store.list():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(name, target)
    return folder
