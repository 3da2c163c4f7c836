"""How the sides of a large build came out: its groups are counted bucket by bucket, on the disk.

A window writes its groups, and how many of its examples each has; whoever looks at a bucket sees
all examples of its groups.
"""

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.shards import equal, sides, storage
from pipeline.shards.sides import Counted, Groups

ENTRY = np.dtype([("group", "<u8"), ("examples", "<u4"), ("test", "<u4")])


def _path(search: equal.Search, window: int) -> Path:
    return Path(search.folder) / "groups" / str(window)


def forget(search: equal.Search) -> None:
    """Remove what the windows have written: everything was counted."""
    shutil.rmtree(_path(search, 0).parent, ignore_errors=True)


def scatter(search: equal.Search, window: int, groups: Groups, test: npt.NDArray[np.bool_]) -> None:
    """Write down the groups of a window's examples, by bucket.

    Args:
        test: which of the examples are in test.
    """
    entries = []
    for side in (False, True):
        group, sizes = np.unique(groups[test == side], return_counts=True)
        mine = np.zeros(len(group), ENTRY)
        mine["group"], mine["examples"], mine["test"] = group, sizes, side
        entries.append(mine)
    every = np.concatenate(entries)
    buckets = storage.first_byte(every["group"])
    storage.write_grouped(_path(search, window), every, buckets, storage.BUCKETS)


def count(search: equal.Search, bucket: int) -> Counted:
    """Count the groups of a bucket.

    Raises:
        PipelineError: one is on both sides.
    """
    paths = [_path(search, window) for window in range(search.windows)]
    entries, _ = storage.read_bucket(paths, bucket, ENTRY)
    return sides.counted(entries["group"], entries["examples"], entries["test"])
