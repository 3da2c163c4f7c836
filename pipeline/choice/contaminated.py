"""How much of an evaluation's question each example has: a number, as far as choosing sees it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns

Shares = npt.NDArray[np.float64]


def most_shared(column: pa.ChunkedArray) -> Shares:
    """The share of the question that each example has most of; 0 where it has nothing of any.

    Args:
        column: ``overlaps``, of a part.
    """
    offsets, overlaps = columns.list_parts(columns.whole(column))
    found = np.zeros(len(offsets) - 1)
    has = np.diff(offsets) > 0
    if has.any():
        place = overlaps.type.get_field_index("share")
        shares = overlaps.flatten()[place].to_numpy()
        found[has] = np.maximum.reduceat(shares, offsets[:-1][has])
    return found
