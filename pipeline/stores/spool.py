"""Copies of remote data and of standard input in the cache; a copy is complete or absent.

Standard input is copied so that it can be split, hashed and read twice. Its rows are ``stdin:1``
and so on.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from pipeline.stores.sources import Located
from stages.errors import UsageError
from stages.files import file_hash

MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow"}
FOLDER = "inputs"


def suffix_of(head: bytes) -> str:
    """A suffix for a file whose name has none, from its first bytes; lines of JSON by default."""
    return next((suffix for magic, suffix in MAGIC.items() if head.startswith(magic)), ".jsonl")


def key_of(*parts: str) -> str:
    """A folder name for a copy."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def intact_copy(folder: Path) -> Path | None:
    """The copy in a folder, if its bytes still have the hash that was noted; else None."""
    try:
        note = json.loads((folder / "copy.json").read_bytes())
        path = folder / str(note["name"])
        if file_hash.sha256(path) != note["sha256"]:
            return None
        for used in (path, folder / "copy.json"):  # pipeline cache prune removes old files
            used.touch()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path


def keep(folder: Path, name: str, fetch: Callable[[Path], None]) -> Path:
    """Fetch into a temporary file, and rename it once it is complete.

    A name without a known suffix gets one from the first bytes, since readers go by suffixes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{uuid.uuid4().hex}.tmp"
    try:
        fetch(temporary)
        if "." not in name.strip(".") or not _known(name):
            with temporary.open("rb") as file:
                name += suffix_of(file.read(8))
        path = folder / name
        note = {"name": name, "sha256": file_hash.sha256(temporary)}
        os.replace(temporary, path)
        (folder / "copy.json").write_text(json.dumps(note), "utf-8")
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _known(name: str) -> bool:
    from stages import readers

    return readers.of_path(name) is not None


STDIN = "stdin"


def standard_input(cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("Nothing is piped into standard input.", "For example: cat rows | ... -")
    sha256 = ""

    def fetch(path: Path) -> None:
        nonlocal sha256
        with path.open("wb") as copy:
            sha256 = file_hash.copied(sys.stdin.buffer, copy)

    waiting = cache_dir / FOLDER / uuid.uuid4().hex
    path = keep(waiting, STDIN, fetch)
    # Named by its content, so that the same input piped again is kept only once.
    home = waiting.with_name(sha256[:32])
    if intact_copy(home) is None:
        home.mkdir(exist_ok=True)
        for name in (path.name, "copy.json"):
            (waiting / name).replace(home / name)
    for left in waiting.iterdir():
        left.unlink()
    waiting.rmdir()
    return [Located(str(home / path.name), (STDIN,), STDIN)]
