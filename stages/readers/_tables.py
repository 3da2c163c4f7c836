"""Rows of Arrow tables as records: every value as the file holds it, by the file's own schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from stages import late
from stages.contract import Lines, Record
from stages.errors import ContainerError
from stages.files import inflate
from stages.readers import _cells

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np = late.module("numpy")
    pa = late.module("pyarrow")

BATCH_ROWS = 8192  # rows that are Python objects at a time
HELD = 64 << 20  # bytes of values that are


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes as base64, other types as text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _has_json(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.JsonType):
        return True
    return any(_has_json(kind.field(i).type) for i in range(kind.num_fields))


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """The value with its JSON columns parsed: ``datasets`` has values of mixed types in these."""
    if value is None or not _has_json(kind):
        return value
    if isinstance(kind, pa.JsonType):
        return json.loads(value)
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return {f.name: _decoded(value[f.name], f.type) for f in fields}
    return [_decoded(inner, kind.value_type) for inner in value]


def _record(number: int, values: dict[str, Any], coded: dict[str, pa.DataType]) -> Record:
    try:
        row = _plain({k: _decoded(v, coded[k]) if k in coded else v for k, v in values.items()})
    except (ValueError, RecursionError) as error:
        raw = json.dumps(_plain(values)).encode()
        message = f"not JSON in a JSON column: {error}"
        return Record(number, offset=None, raw=raw, data=None, error=("bad_json", message))
    raw = json.dumps(row).encode()
    return Record(number, offset=None, raw=raw, data=row, typed=True)


def _unreadable(number: int, error: Exception) -> Record:
    message = " ".join(str(error).split())
    undecodable = isinstance(error, UnicodeDecodeError)
    return Record(
        number,
        offset=None,
        raw=b"",
        data=None,
        error=("bad_encoding" if undecodable else "bad_value", message),
    )


def _slice(part: pa.RecordBatch, number: int, coded: dict[str, pa.DataType]) -> list[Record]:
    try:
        rows = part.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException) as error:  # some value has no Python form
        if part.num_rows == 1:
            return [_unreadable(number, error)]
        each = (_slice(part.slice(i, 1), number + i, coded) for i in range(part.num_rows))
        return [record for one in each for record in one]
    return [_record(number + i, row, coded) for i, row in enumerate(rows)]


def _decoded_as(plain: pa.Schema | None, part: pa.RecordBatch) -> pa.RecordBatch:
    try:
        return part.cast(plain) if plain else part
    except pa.ArrowNotImplementedError:  # it takes longer so, and the values are the same
        return part


def records(
    batches: Iterable[pa.RecordBatch],
    size: int,
    share: float = 1.0,
    plain: pa.Schema | None = None,
) -> Iterator[Lines]:
    """Each row as a record; ``raw`` is its JSON, since it has no text of its own.

    Args:
        size: bytes of the file; ``share``: of its rows that these are.
        plain: the schema without the dictionaries that values are given in.

    Raises:
        ContainerError: two columns have one name, so a row could hold only one of them; or the file
            expands too far. The caller names the file.
    """
    number = text = 0
    for whole in batches:
        names = whole.schema.names
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ContainerError(f"Two columns are called {twice!r}.", "Rename one of them.")
        coded = {field.name: field.type for field in whole.schema if _has_json(field.type)}
        weights = (_cells.of(column, size) for column in whole.columns)
        sums = text + np.cumsum(sum(weights, np.zeros(whole.num_rows, np.int64)))
        start, before, text = 0, text, int(sums.max(initial=text))
        inflate.require_text(size, round(text / share))
        while start < whole.num_rows:
            fitting = int(np.searchsorted(sums, before + HELD, "right"))
            stop = min(max(fitting, start + 1), start + BATCH_ROWS)
            part = _slice(_decoded_as(plain, whole.slice(start, stop - start)), number, coded)
            start, before, number = stop, int(sums[stop - 1]), number + len(part)
            yield Lines(part, len(part))
