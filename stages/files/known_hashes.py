"""Hashes of files that have not changed since they were hashed, as their size and times say.

A file that is written twice within a tick of the clock has the times of the first writing, so a
hash is only kept of a file that had been left alone for a while when it was hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeAlias

from stages.files import file_hash, file_state
from stages.files.file_state import FileState

_VERSION = 2

Identity: TypeAlias = tuple[int, ...]


def identity(path: str | Path) -> Identity:
    """What changes when a file is written or replaced: device, inode, size, and both times.

    Raises:
        OSError: there is no such file.
    """
    return astuple(file_state.of(path))


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
        if kept is None:
            return None
        try:
            return kept[1] if identity(path) == kept[0] else None
        except OSError:
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
        found = file_hash.sha256(path)
        self.note(path, found, before, began)
        return found

    def note(self, path: str | Path, sha256: str, before: Identity, began: int) -> None:
        """Keep a hash that was computed.

        Args:
            before: the file's identity before it was read; ``began``: when that was, in
                nanoseconds since the epoch.
        """
        settled = max(before[-2:]) + file_state.COARSE <= began
        if settled and identity(path) == before:
            self._new[_key(path)] = (before, sha256)

    def keep(self, path: str | Path, sha256: str, seen: FileState, linked: bool = False) -> None:
        """Keep a hash of a file that nobody has written to since.

        Args:
            seen: its state when it was hashed.
            linked: this program has removed another name of it since, so that its time of change
                says nothing; its time of modification, which a writer can set, must do.
        """
        with suppress(OSError):
            now = file_state.of(path)
            if (now.written_as(seen) if linked else now == seen) and now.dated():
                self._new[_key(path)] = (astuple(now), sha256)

    def save(self) -> None:
        """Write the hashes down, where there are new ones; the old ones that were not asked for
        stay. Without a writable cache every build hashes its files again."""
        if not self._new:
            return
        files = {name: [*ident, sha] for name, (ident, sha) in (self._kept | self._new).items()}
        content = {"version": _VERSION, "files": files, "sha256": _seal(files)}
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content))
            temporary.replace(self._path)
        except OSError:
            with suppress(OSError):  # a read-only disk refuses this even without such a file
                temporary.unlink()


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
