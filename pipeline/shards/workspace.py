"""Shards that other processes have made for a build that is not assembled yet.

They lie in the cache, in a folder of the build, each under its key and the hash of its bytes. What
was measured of it is remembered where that of every shard is (``kept``). A file gets its name when
it is whole and remembered, so whatever has a name here can be taken over; two processes that make
the same shard give it the same name. The folder goes when the build is published.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.shards import gather, reused_shards
from pipeline.shards.gather import ShardWork
from pipeline.shards.measured import METRICS
from pipeline.shards.reused_shards import Keeping, Previous
from stages.errors import SurroundingsError

FOLDER = "builds"  # in the cache


def folder_of(cache: Path, build_id: str) -> Path:
    """The workspace of a build."""
    return cache / FOLDER / build_id


def found(folder: Path, cache: Path) -> dict[str, Previous]:
    """The shards of a workspace, by their keys.

    Args:
        cache: the folder for what is remembered of shards.
    """
    shards = {}
    for path in sorted(folder.glob("*.arrow")):
        key, _, sha256 = path.stem.partition(".")
        shards[key] = Previous(str(path), str(reused_shards.memory_of(cache, sha256)))
    return shards


@contextmanager
def own(folder: Path) -> Iterator[Path]:
    """A folder in a workspace for the unfinished shards of one process and its workers."""
    mine = folder / f".{uuid.uuid4().hex}"
    try:
        (mine / METRICS).mkdir(parents=True)
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def make(keeping: Keeping, shard: ShardWork) -> bool:
    """Make one shard into the workspace that ``keeping.gather.folder`` lies in.

    Returns:
        Whether it was made: one that can be taken over is not.

    Raises:
        SurroundingsError: the disk is full.
    """
    key, rows = reused_shards.keys_of(keeping, shard)
    if key in keeping.previous:
        return False
    folder = Path(keeping.gather.folder)
    reused_shards.require_parts(keeping, shard)
    report = gather.make_shard(keeping.gather, shard)
    try:
        reused_shards.remember(keeping, key, report, rows)
        # Last: the name says that it is whole.
        (folder / shard.path).replace(folder.parent / f"{key}.{report.sha256}.arrow")
    except OSError as error:
        raise SurroundingsError(
            f"{shard} cannot be kept in {folder.parent}: {error}.", "Make room on the disk."
        ) from error
    return True


def remove(folder: Path) -> None:
    """Remove a workspace whose build is published."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # others are there
        folder.parent.rmdir()
