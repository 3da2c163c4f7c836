"""Copies standard input into the cache, so that it can be split, hashed and read twice. Its rows
are ``stdin:1`` and so on."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from pipeline.sources import Located, spool
from stages.errors import UsageError
from stages.files import file_hash

NAME = "stdin"


def locate(cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("Nothing is piped into standard input.", "For example: cat rows | ... -")
    sha256 = ""

    def fetch(path: Path) -> None:
        nonlocal sha256
        with path.open("wb") as copy:
            sha256 = file_hash.copied(sys.stdin.buffer, copy)

    waiting = cache_dir / spool.FOLDER / uuid.uuid4().hex
    path = spool.keep(waiting, NAME, fetch)
    # Named by its content, so that the same input piped again is kept only once.
    home = waiting.with_name(sha256[:32])
    if spool.intact_copy(home) is None:
        home.mkdir(exist_ok=True)
        for name in (path.name, "copy.json"):
            (waiting / name).replace(home / name)
    for left in waiting.iterdir():
        left.unlink()
    waiting.rmdir()
    return [Located(str(home / path.name), (NAME,), NAME)]
