"""The tables of metrics that the gate checks: the columns of all subjects side by side.

They are computed only from what is stored, not by the code that wrote it, so that they are about
what a trainer will read. All metrics are whole numbers: no text of the data reaches the gate.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.contract import DATASET, EXAMPLE, ROW, SHARD, Context
from expectations.dataset import Dataset
from expectations.invariants import metrics_of
from expectations.pack_index import IndexRows
from expectations.stored_rows import ShardFile, StoredRows
from stages.errors import GateError

_HELP = "Fix the metrics of that subject."


def _checked(subject: str, name: str, values: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """A column of whole numbers, one for each example, row or file."""
    column = np.asarray(values)
    if column.dtype.kind not in "biu":
        raise GateError(
            f"{subject} measures {name} as {column.dtype}; metrics are whole numbers or booleans.",
            _HELP,
        )
    if column.shape != (count,):
        raise GateError(
            f"{subject} measures {name} for {column.shape} items; there are {count}.", _HELP
        )
    return column.astype(np.int64, copy=False)


def _measured(
    source: object, context: Context, level: str, count: int
) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of all subjects at one level.

    Args:
        source: the object that ``Metrics.measure`` gets at this level.
        count: rows that the table must have.

    Raises:
        GateError: two subjects have a column of one name, or a column is not whole numbers.
    """
    columns: dict[str, npt.NDArray[np.int64]] = {}
    owner: dict[str, str] = {}
    for subject, metrics in metrics_of(context, level):
        for name, values in metrics.measure(source).items():
            if name in columns:
                raise GateError(
                    f"{subject} measures {name}, and so does {owner[name]}.",
                    "Give the column of your subject another name.",
                )
            columns[name] = _checked(subject, name, values=values, count=count)
            owner[name] = subject
    return columns


def measured(rows: StoredRows, level: str) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of examples, or of training rows (packs, padded rows), as columns."""
    context = replace(rows.context, evidence=rows.evidence)
    count = len(rows) if level == EXAMPLE else rows.table.num_rows
    return _measured(rows, context, level=level, count=count)


def of_index(rows: IndexRows) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of packs that are an index, as columns."""
    context = replace(rows.context, evidence=rows.evidence)
    return _measured(rows, context, level=ROW, count=rows.table.num_rows)


def shard(file: ShardFile) -> dict[str, int]:
    """The metrics of one file."""
    columns = _measured(file, file.context, level=SHARD, count=1)
    return {name: int(values[0]) for name, values in columns.items()}


def dataset(build: Dataset) -> pa.Table:
    """The one row of metrics of a whole build."""
    return pa.table(_measured(build, build.context, level=DATASET, count=1))
