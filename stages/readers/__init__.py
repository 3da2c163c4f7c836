"""One container format per file: each provides READER."""

from __future__ import annotations

import functools

from stages import catalog
from stages.contract import Reader


def load(name: str) -> Reader:
    """The reader of this name."""
    reader: Reader = catalog.load(__name__, name, "READER")
    return reader


@functools.cache
def suffixes() -> dict[str, str]:
    """Reader name by file suffix."""
    known = {}
    for name in catalog.names(__name__):
        known.update(dict.fromkeys(load(name).suffixes, name))
    return known


def of_path(path: str) -> str | None:
    """The name of the reader that a file's suffix asks for; None when there is none."""
    known = suffixes()
    fitting = [suffix for suffix in known if path.lower().endswith(suffix)]
    return known[max(fitting, key=len)] if fitting else None
