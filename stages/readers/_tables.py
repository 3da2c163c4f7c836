"""Rows of Arrow tables as records: every value as the file holds it, by the file's own schema."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa

from stages.contract import Lines, Record

BATCH_ROWS = 4096


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.timedelta, decimal.Decimal)):
        return str(value)
    raise TypeError(type(value).__name__)


def records(batches: Iterable[pa.RecordBatch]) -> Iterator[Lines]:
    """Each row as a record; ``raw`` is its JSON, since it has no text of its own."""
    number = 0
    for whole in batches:
        for start in range(0, whole.num_rows, BATCH_ROWS):
            rows = whole.slice(start, BATCH_ROWS).to_pylist()
            batch = []
            for row in rows:
                raw = orjson.dumps(row, default=_plain, option=orjson.OPT_NON_STR_KEYS)
                batch.append(Record(number, None, raw, row))
                number += 1
            yield Lines(batch, len(batch))
