"""Hashes of pieces of inputs that were read before, by the version and the range.

Who has read a piece notes its hash in the cache. While the file's version is the same, its part is
found by that, and nobody reads the piece again to learn its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path

from stages.contract import Split
from stages.files.file_version import FileVersion

FOLDER = "scans"
_HASH = 32


def keep(cache_dir: Path, split: Split, found: Split) -> None:
    """Note the hash of a split.

    Args:
        found: the same after it was read.
    """
    path = _path(cache_dir, split)
    if path is not None and not split.sha256 and found.sha256:
        write(path, json.dumps([found.sha256, found.lines]).encode())


def known(cache_dir: Path, split: Split) -> Split:
    """The split with its hash, where that was noted."""
    path = _path(cache_dir, split)
    content = None if path is None or split.sha256 else read(path)
    if content is None:
        return split
    sha256, lines = json.loads(content)
    return replace(split, sha256=sha256, lines=lines)


def _path(cache_dir: Path, split: Split) -> Path | None:
    version = split.version
    if version is None or not version.is_fixed:
        return None
    ranges = [(piece.start, piece.stop) for piece in version.pieces]
    key = hashlib.sha256(repr((split.reader, _identity(version), ranges)).encode()).hexdigest()
    return cache_dir / FOLDER / key[:2] / f"{key}.hash"


def _identity(version: FileVersion) -> object:
    if version.stored is not None:
        return version.stored.key
    return os.path.realpath(version.path), version.state and astuple(version.state)


def read(path: Path) -> bytes | None:
    """A file of the cache without the hash before its content; None where it is not whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    whole = hashlib.sha256(content[_HASH:]).digest() == content[:_HASH]
    return content[_HASH:] if whole else None


def write(path: Path, content: bytes) -> None:
    """Keep a file, whole or not at all; without a writable cache it is found out again."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # a read-only disk refuses this even where there is no such file
            temporary.unlink()
