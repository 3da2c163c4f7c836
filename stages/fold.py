"""Ids and labels in one column, for the way from a part to a shard.

Where labels are the ids or -100, one number says both: an id as it is where it is not trained, and
its bitwise complement (which is negative) where it is. Parts are half as large for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.columns import IGNORED, make_list, numbers
from stages.contract import Batch


def folded_ids(ids: npt.NDArray[np.int32], labels: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Both in one array; labels must be the ids or -100."""
    return np.where(labels != IGNORED, ~ids, ids)


def fold(batch: Batch) -> Batch:
    """Put ``folded`` in the place of ``input_ids`` and ``labels``."""
    offsets, ids = numbers(batch.column("input_ids"))
    labels = numbers(batch.column("labels"))[1]
    folded = make_list(offsets, pa.array(folded_ids(ids, labels)))
    return columns.put(batch.drop_columns(["input_ids", "labels"]), "folded", folded)


def unfold(table: pa.Table) -> pa.Table:
    """The inverse of ``fold``; a table without the column stays as it is."""
    if "folded" not in table.schema.names:
        return table
    offsets, folded = numbers(columns.whole(table.column("folded")))
    ids = folded ^ (folded >> 31)  # the sign bit, spread, inverts exactly the trained ones
    labels = np.where(folded < 0, ids, np.int32(IGNORED))
    table = table.drop_columns(["folded"])
    table = table.append_column("input_ids", make_list(offsets, pa.array(ids)))
    return table.append_column("labels", make_list(offsets, pa.array(labels)))
