"""Rows of Arrow tables as records: every value as the file holds it, by the file's own schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from stages.contract import Lines, Record

BATCH_ROWS = 4096


def _plain(value: Any) -> Any:
    """What JSON can hold as it is; bytes as base64, anything else as text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def records(batches: Iterable[pa.RecordBatch]) -> Iterator[Lines]:
    """Each row as a record; ``raw`` is its JSON, since it has no text of its own."""
    number = 0
    for whole in batches:
        for start in range(0, whole.num_rows, BATCH_ROWS):
            batch = []
            for found in whole.slice(start, BATCH_ROWS).to_pylist():
                row = _plain(found)
                batch.append(Record(number, None, json.dumps(row).encode(), row))
                number += 1
            yield Lines(batch, len(batch))
