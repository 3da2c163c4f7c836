"""Parts that nobody has read since they were written, compared with their hashes before a shard is
made of them.

Whoever goes on from parts that others made needs the bytes of those that its shards are made of. To
compare all of them first would have each of n ranks read what all have made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from pipeline.shards.examples import part_of
from pipeline.shards.gather import Gather, ShardWork
from pipeline.shards.storage import here
from stages.errors import SurroundingsError
from stages.files import file_hash

_alike: set[str] = set()  # paths of the parts that this process has compared


def forget() -> None:
    """Let go of what this process knows of parts."""
    _alike.clear()


def require(shared: Gather, hashes: Sequence[str], shard: ShardWork) -> None:
    """The parts that a shard is made of are as they were written.

    Args:
        hashes: the sha256 of each part's file.

    Raises:
        SurroundingsError: one is not.
    """
    for part in np.unique(part_of(shared.starts, shard.order)).tolist():
        source = shared.sources[part]
        if source.path not in _alike and not _is_alike(source.path, hashes[part]):
            raise SurroundingsError(
                f"{source.path}, a part of {source.name}, is not as it was written.",
                "Remove it and run the same command again: it names the rank that has to make it.",
            )
        _alike.add(source.path)


def _is_alike(path: str, sha256: str) -> bool:
    with suppress(OSError):
        return file_hash.sha256(here(Path(path))) == sha256
    return False
