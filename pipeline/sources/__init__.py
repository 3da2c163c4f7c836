"""Where data comes from: files, URLs, standard input and the hub, each as local files to open.

What does not lie on this machine is fetched once, whole, into the cache: splits, offsets, hashes
and a second attempt need bytes that stay where they are. A build reads that one copy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Located:
    """One file of the input.

    Attributes:
        path: as it is opened on this machine.
        parts: its full name in pieces; rows are named by the shortest end that no other shares.
        origin: where it came from, without passwords, keys or signatures.
        reader: the name of its reader, where its suffix does not say so.
    """

    path: str
    parts: tuple[str, ...]
    origin: str
    reader: str | None = None


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """The files behind what the user points at, in a stable order.

    Raises:
        UsageError: there is nothing there.
        SurroundingsError: it cannot be fetched.
    """
    from pipeline.sources import hub, local

    if argument == "-":
        from pipeline.sources import stdin

        return stdin.locate(cache_dir)
    if "://" in argument:
        from pipeline.sources import remote

        return remote.locate(argument, cache_dir)
    if hub.is_dataset_id(argument) and not os.path.lexists(argument):
        return hub.locate(argument, cache_dir)
    return local.locate(argument)
