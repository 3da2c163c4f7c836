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
        self.texts: list[str] = []
        self.kinds = bytearray()
        self.rows: list[int] = []
        self.lengths: list[int] = []
        self.paths: list[str] = []
        self.errors: dict[int, RowError] = {}

    def add(self, row: int, texts: list[str], kinds: bytes, path: str) -> None:
        """Add the segments of a row; rows come in order."""
        self.texts += texts
        self.kinds += kinds
        self.rows.append(row)
        self.lengths.append(len(texts))
        self.paths.append(path)

    def refuse(self, row: int, error: RowError) -> None:
        """Leave a row empty, and refuse it."""
        self.errors[row] = error

    def _rendered(self, count: int, otherwise: str | None) -> pa.Array:
        if not self.rows and not self.errors and otherwise:
            return pa.repeat(pa.scalar(otherwise), count)
        paths: list[str | None] = [otherwise] * count
        for row, path in zip(self.rows, self.paths, strict=True):
            paths[row] = path
        for row in self.errors:
            paths[row] = None
        return pa.array(paths, pa.string())

    def into(self, batch: Batch, name: str, otherwise: str | None = None) -> Batch:
        """The batch with the column, and the path that each row took in ``rendered``.

        Args:
            otherwise: the path of rows without segments that are not refused.
        """
        texts = pa.array(self.texts, pa.string())
        kinds = pa.array(np.frombuffer(bytes(self.kinds), np.uint8))
        fields = list(columns.SEGMENTS.value_type)
        flat = pa.StructArray.from_arrays([texts, kinds], fields=fields)
        lengths = np.zeros(batch.num_rows, np.int64)
        lengths[self.rows] = self.lengths
        batch = columns.put(batch, name, make_list(offsets_of(lengths), flat))
        batch = columns.put(batch, "rendered", self._rendered(batch.num_rows, otherwise))
        return refuse_all(batch, self.errors)
