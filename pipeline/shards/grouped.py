"""Files of records grouped by bucket: who writes one reads nothing else, who wants one bucket reads
that of every file.

    257 offsets of 8 bytes, in records; then the records of bucket 0, of bucket 1, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.shards.storage import replacing
from stages.columns import Ints, offsets_of

BUCKETS = 256
_OFFSET = 8  # bytes
Records = npt.NDArray[Any]


def first_byte(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The bucket of each hash."""
    return (hashes >> np.uint64(56)).astype(np.uint8)


def write(path: Path, records: Records, buckets: npt.NDArray[np.integer[Any]], count: int) -> None:
    """Write records; those of one bucket stay in their order.

    Args:
        buckets: of each record; ``count``: how many there are.
    """
    order = np.argsort(buckets, kind="stable")
    offsets = offsets_of(np.bincount(buckets, minlength=count))
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(offsets.astype("<i8").tobytes())
        file.write(np.ascontiguousarray(records[order]).tobytes())


def read(
    path: Path, first: int, kind: np.dtype[Any], count: int, last: int | None = None
) -> Records:
    """The records of one bucket of a file, or of those from ``first`` to before ``last``."""
    last = first + 1 if last is None else last
    with path.open("rb") as file:
        file.seek(_OFFSET * first)
        offsets = np.frombuffer(file.read(_OFFSET * (last - first + 1)), "<i8")
        start, stop = int(offsets[0]), int(offsets[-1])
        file.seek(_OFFSET * (count + 1) + start * kind.itemsize)
        return np.frombuffer(file.read((stop - start) * kind.itemsize), kind)


def read_all(paths: Sequence[Path], bucket: int, kind: np.dtype[Any]) -> tuple[Records, Ints]:
    """The records of one bucket of many files, and the number of the file that each is of."""
    found = [read(path, bucket, kind, BUCKETS) for path in paths]
    sizes = np.array([len(one) for one in found], np.int64)
    return np.concatenate([np.zeros(0, kind), *found]), np.repeat(np.arange(len(paths)), sizes)
