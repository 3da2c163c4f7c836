"""Values that a build chooses by, compared with those of the rows that they are of.

A value in the place of another row would leave out the wrong example, and nothing else of the build
would show it. So some rows of every batch are looked up again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stages.contract import Batch, Record
from stages.errors import ReadingError
from stages.rows.carried import VALUES

ROWS = 16  # of each batch, evenly spaced


def _at(value: Any, path: str) -> Any:
    """What is at a path: a key with dots in it comes before what is inside."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdigit() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _alike(stored: Mapping[str, Any], value: Any) -> bool:
    found = [one for one in stored.values() if one is not None]
    if value is None or value != value:  # NaN
        return not found
    if isinstance(value, list | dict):
        return found == [True] and stored["other"] is True
    return found == [value] and isinstance(found[0], bool) == isinstance(value, bool)


def check(
    batch: Batch,
    paths: Sequence[str],
    records: Mapping[int, Record],
    place_of: Callable[[int], str],
) -> None:
    """Look some rows of a batch up again.

    Args:
        paths: of the values that it carries, in their order.
        records: by line; ``place_of``: gives a line its name in messages.

    Raises:
        ReadingError: a row has not the value of its record.
    """
    if not paths or not batch.num_rows:
        return
    chosen = np.unique(np.linspace(0, batch.num_rows - 1, ROWS).astype(np.int64))
    some = pa.table(batch).select(["line", VALUES]).take(pa.array(chosen))
    for row in some.to_pylist():
        record = records[row["line"]]
        for path, stored in zip(paths, row[VALUES], strict=True):
            if not _alike(stored, _at(record.data, path)):
                shown = json.dumps(path)
                raise ReadingError(
                    f"{place_of(row['line'])}: the value at {shown} is not that of the row."
                )
