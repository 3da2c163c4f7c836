"""How the sides of a large build came out: its groups are counted bucket by bucket, on the disk.

A window writes its groups, and how many of its examples each has; whoever looks at a bucket sees
all examples of its groups.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.shards import grouped
from pipeline.shards.equal import Search
from pipeline.shards.sides import Groups, SplitRule
from stages.errors import PipelineError

ENTRY = np.dtype([("group", "<u8"), ("examples", "<u4"), ("test", "<u4")])


@dataclass(frozen=True, slots=True)
class Counted:
    """The groups of a bucket.

    Attributes:
        largest: examples of the largest; ``squares``: the sum of the squares of all sizes.
    """

    groups: int
    groups_in_test: int
    examples: int
    in_test: int
    largest: int
    squares: int


def _path(search: Search, window: int) -> Path:
    return Path(search.folder) / "groups" / str(window)


def forget(search: Search) -> None:
    """Remove what the windows have written: everything was counted."""
    shutil.rmtree(_path(search, 0).parent, ignore_errors=True)


def scatter(search: Search, window: int, groups: Groups, test: npt.NDArray[np.bool_]) -> None:
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
    buckets = grouped.first_byte(every["group"])
    grouped.write(_path(search, window), every, buckets, grouped.BUCKETS)


def count(search: Search, bucket: int) -> Counted:
    """Count the groups of a bucket.

    Raises:
        PipelineError: one is on both sides.
    """
    paths = [_path(search, window) for window in range(search.windows)]
    entries, _ = grouped.read_all(paths, bucket, ENTRY)
    groups, of = np.unique(entries["group"], return_inverse=True)
    sizes = np.bincount(of, entries["examples"], len(groups)).astype(np.int64)
    tested = np.bincount(of, entries["examples"] * entries["test"], len(groups)).astype(np.int64)
    if ((tested > 0) & (tested < sizes)).any():
        raise PipelineError("Rows that ask the same are in train and in test.")
    return Counted(
        groups=len(groups),
        groups_in_test=int(np.count_nonzero(tested)),
        examples=int(sizes.sum()),
        in_test=int(tested.sum()),
        largest=int(sizes.max(initial=0)),
        squares=int((sizes**2).sum()),
    )


def outcome(counted: Sequence[Counted], share: float) -> SplitRule:
    """What came of a split.

    Args:
        counted: in all buckets; ``share``: asked for.
    """
    total = sum(one.examples for one in counted)
    if not total:
        return SplitRule(0, 0, largest=0.0, share=0.0, deviation=0.0)
    squares = sum(one.squares for one in counted) / total**2
    return SplitRule(
        groups=sum(one.groups for one in counted),
        groups_in_test=sum(one.groups_in_test for one in counted),
        largest=round(max(one.largest for one in counted) / total, 6),
        share=round(sum(one.in_test for one in counted) / total, 6),
        deviation=round(float(np.sqrt(share * (1 - share) * squares)), 6),
    )
