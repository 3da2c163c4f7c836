"""What parts have of a row beside its example, because a build chooses by it.

Only what is asked for is there: values of raw columns, and counts that nothing but normalize can
make. Limits and expressions are no part of it, so another limit encodes nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.columns import Ints
from stages.contract import Batch, Record
from stages.rows.selection import lookup

VALUES, TURNS, CHARACTERS = "carried", "n_turns", "n_characters"
COUNTS = (TURNS, CHARACTERS)
KINDS = ("whole", "number", "text", "truth", "other")  # the fields of a value: one is not null
_WHOLE = 2**63


@dataclass(frozen=True, slots=True)
class Carried:
    """What is asked for.

    Attributes:
        paths: of raw columns, dotted, as the file has them; sorted.
        counts: some of ``COUNTS``.
    """

    paths: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a part that it takes."""
        return ((VALUES,) if self.paths else ()) + self.counts


def _kind(value: Any) -> str | None:
    """Which field of a value holds it; None for what is no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int):
        return "whole" if -_WHOLE <= value < _WHOLE else "number"
    if isinstance(value, float):
        return "number" if value == value else None  # NaN: no number
    return "text" if isinstance(value, str) else "other"


def _values(values: Sequence[Any]) -> pa.StructArray:
    """Values of any JSON type, each in the field of its type."""
    kinds = [_kind(value) for value in values]
    types = columns.CARRIED.value_type
    casts: dict[str, Callable[[Any], Any]] = {"number": float, "other": lambda value: True}
    arrays = []
    for name in KINDS:
        cast = casts.get(name, lambda value: value)
        own = [cast(one) if kind == name else None for kind, one in zip(kinds, values, strict=True)]
        arrays.append(pa.array(own, types.field(name).type))
    return pa.StructArray.from_arrays(arrays, fields=list(types))


def _read(lines: Sequence[int], paths: Sequence[str], records: Iterable[Record]) -> pa.ListArray:
    """The values at some paths of each line's row."""
    found = {
        record.line: [lookup(record.data, path) for path in paths]
        for record in records
        if record.data is not None
    }
    absent = [None] * len(paths)
    values = [value for line in lines for value in found.get(line, absent)]
    offsets = np.arange(len(lines) + 1) * len(paths)
    return columns.make_list(offsets, _values(values))


def _turns(column: pa.ListArray) -> Ints:
    offsets, turns = columns.list_parts(column)
    own = pc.not_equal(turns.field("role"), "system").fill_null(True)
    return columns.count_per_row(offsets, own.to_numpy(zero_copy_only=False))


def _characters(column: pa.Array) -> Ints:
    """Characters of a column of texts, of lists of them, or of turns."""
    if not pa.types.is_list(column.type):
        found: Ints = pc.fill_null(pc.utf8_length(column), 0).to_numpy().astype(np.int64)
        return found
    offsets, values = columns.list_parts(column)
    texts = values.field("content") if pa.types.is_struct(values.type) else values
    sizes = pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
    return columns.sum_per_row(offsets, sizes)


def _counted(batch: Batch, name: str, texts_of: Sequence[str], pairs: bool) -> pa.Array:
    """A count for each example; null where its kind has none."""
    texts = [columns.whole(batch.column(one)) for one in texts_of]
    if name == TURNS:
        texts = [one for one in texts if one.type == columns.MESSAGES]
    if not texts:
        return pa.nulls(batch.num_rows, columns.TYPES[name])
    counts = [(_turns if name == TURNS else _characters)(one) for one in texts]
    total = np.max(counts, axis=0) if pairs else np.sum(counts, axis=0)
    return pa.array(total)


def put(
    batch: Batch, asked: Carried, texts: Sequence[str], pairs: bool, records: Iterable[Record]
) -> Batch:
    """The batch with the columns that are asked for.

    Args:
        texts: columns of the texts of an example; ``pairs``: one for each side.
        records: the rows that the examples come from.
    """
    for name in asked.counts:
        batch = columns.put(batch, name, _counted(batch, name, texts, pairs))
    if asked.paths:
        lines: list[Any] = batch.column("line").to_pylist()
        batch = columns.put(batch, VALUES, _read(lines, asked.paths, records))
    return batch
