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
    """A segments column while rows are added to it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kinds = bytearray()
        self.lengths: list[int] = []
        self.paths: list[str | None] = []
        self.errors: dict[int, RowError] = {}

    def add(self, texts: list[str], kinds: bytes, path: str) -> None:
        self.texts += texts
        self.kinds += kinds
        self.lengths.append(len(texts))
        self.paths.append(path)

    def refuse(self, error: RowError) -> None:
        self.errors[len(self.lengths)] = error
        self.lengths.append(0)
        self.paths.append(None)

    def into(self, batch: Batch, name: str) -> Batch:
        texts = pa.array(self.texts, pa.string())
        kinds = pa.array(np.frombuffer(bytes(self.kinds), np.uint8))
        fields = list(columns.SEGMENTS.value_type)
        flat = pa.StructArray.from_arrays([texts, kinds], fields=fields)
        offsets = offsets_of(np.array(self.lengths, np.int64))
        batch = columns.put(batch, name, make_list(offsets, flat))
        batch = columns.put(batch, "rendered", pa.array(self.paths, pa.string()))
        return refuse_all(batch, self.errors)
