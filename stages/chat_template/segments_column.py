"""The column of segments that rendering adds to a batch, built row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import make_list, offsets_of
from stages.contract import Batch
from stages.errors import RowError


def refuse_all(batch: Batch, errors: dict[int, RowError]) -> Batch:
    """Fill the reject columns with what each row raised."""
    for code in sorted({error.code for error in errors.values()}):
        details = {row: error.detail for row, error in errors.items() if error.code == code}
        rows = np.zeros(batch.num_rows, bool)
        rows[list(details)] = True
        batch = columns.refuse(batch, rows, code, list(details.values()))
    return batch


class SegmentsColumn:
    """A segments column while rows are added to it, by their index; rows without any are empty."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], bytes, str]] = {}
        self._errors: dict[int, RowError] = {}

    def add(self, row: int, texts: list[str], kinds: bytes, path: str) -> None:
        """Add the segments of a row; rows come in order."""
        self._rows[row] = (texts, kinds, path)

    def refuse(self, row: int, error: RowError) -> None:
        """Leave a row empty, and refuse it."""
        self._errors[row] = error

    def into(self, batch: Batch, name: str, otherwise: str | None = None) -> Batch:
        """The batch with the column, and the path that each row took in ``rendered``.

        Args:
            otherwise: the path of rows without segments that are not refused.
        """
        lengths = np.zeros(batch.num_rows, np.int64)
        paths: list[str | None] = [otherwise] * batch.num_rows
        for row, (own, _, path) in self._rows.items():
            lengths[row], paths[row] = len(own), path
        for row in self._errors:
            paths[row] = None
        texts = pa.array([text for own, _, _ in self._rows.values() for text in own], pa.string())
        kinds = np.frombuffer(b"".join(own for _, own, _ in self._rows.values()), np.uint8)
        fields = list(columns.SEGMENTS.value_type)
        flat = pa.StructArray.from_arrays([texts, pa.array(kinds)], fields=fields)
        batch = columns.put(batch, name, make_list(offsets_of(lengths), flat))
        batch = columns.put(batch, "rendered", pa.array(paths, pa.string()))
        return refuse_all(batch, self._errors)
