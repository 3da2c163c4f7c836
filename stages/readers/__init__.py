"""One container format per file: each provides READER."""

from __future__ import annotations

from stages import catalog
from stages.contract import Reader


def load(name: str) -> Reader:
    """The reader of this name."""
    reader: Reader = catalog.load(__name__, name, "READER")
    return reader


def suffixes() -> dict[str, str]:
    """Reader name by file suffix."""
    known = {}
    for name in catalog.names(__name__):
        known.update(dict.fromkeys(load(name).suffixes, name))
    return known
