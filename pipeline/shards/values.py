"""Values of raw columns that parts carry (``stages.rows.carried``): their types over a source.

A column has one type in all rows of a source: numbers, texts, or true and false. It is decided over
all of them, so that a comparison means the same in every row, and never by the rows of one part.

``--dedup-keep`` chooses by them: of equal examples the one stays that has the best number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from stages.columns import whole
from stages.contract import Batch, Record
from stages.errors import DataError, ReadingError, UsageError
from stages.rows.carried import KINDS, VALUES

if TYPE_CHECKING:
    from pipeline.shards.collect import PartSource
    from pipeline.shards.plan import Member

NUMBER, TEXT, TRUTH, NOTHING = "number", "text", "truth", "nothing"
_TYPE_OF = {"whole": NUMBER, "number": NUMBER, "text": TEXT, "truth": TRUTH}
WORDS = {
    NUMBER: "a number",
    TEXT: "a text",
    TRUTH: "true or false",
    NOTHING: "null",
    "other": "a list or an object",
}
Rows: TypeAlias = pa.Table | pa.RecordBatch


def at_path(rows: Rows, paths: Sequence[str], path: str) -> pa.StructArray:
    """The values of one path in each row.

    Args:
        paths: all that the rows carry, in their order.
    """
    flat = whole(rows.column(VALUES)).flatten()
    places = np.arange(paths.index(path), len(flat), len(paths))
    return flat.take(pa.array(places))


@dataclass(slots=True)
class Seen:
    """The types of some columns over all rows of a source, and the first row that has each.

    Attributes:
        first: by path and by field of a value.
        rows: how many were looked at.
    """

    paths: tuple[str, ...]
    first: dict[str, dict[str, str]] = field(default_factory=dict)
    rows: int = 0

    def add(self, rows: Rows, name_of: Callable[[int], str]) -> None:
        """Look at some rows; ``name_of``: of the row with an index among them."""
        self.rows += rows.num_rows
        for path in self.paths:
            values = at_path(rows, self.paths, path)
            found = self.first.setdefault(path, {})
            for kind in KINDS:
                column = values.field(kind)
                if kind not in found and column.null_count < len(column):
                    there = column.is_valid().to_numpy(zero_copy_only=False)
                    found[kind] = name_of(int(there.argmax()))

    def type_of(self, path: str, option: str) -> str:
        """The one type of a column; ``NOTHING`` where no row has a value.

        Raises:
            DataError: it has several, or holds lists or objects.
        """
        found = self.first.get(path, {})
        if "other" in found:
            raise DataError(
                f"{option} reads {path}, which is {WORDS['other']} in {found['other']}.",
                "Name what is inside with dots (meta.score), or leave the column out of it.",
            )
        types: Mapping[str, str] = {_TYPE_OF[kind]: row for kind, row in found.items()}
        if len(types) > 1:
            said = " and ".join(f"{WORDS[type_]} in {row}" for type_, row in types.items())
            raise DataError(
                f"{option} reads {path}, which is {said}.",
                "Write it in one type in all rows, or use --where, which compares row by row.",
            )
        return next(iter(types), NOTHING)

    def is_whole(self, path: str) -> bool:
        """Whether all numbers of a column are whole."""
        return "number" not in self.first.get(path, {})


def over(parts: Sequence[Member], paths: tuple[str, ...]) -> Seen:
    """The types of columns over some parts."""
    seen = Seen(paths)
    for part in parts if paths else ():
        rows = part.source.read(("line", VALUES))
        seen.add(rows, partial(_row, part.source, rows))
    return seen


def _row(source: PartSource, rows: pa.Table, at: int) -> str:
    return f"{source.name}:{source.first_line + rows.column('line')[at].as_py() + 1}"


Scores = npt.NDArray[np.float64]
_OPTION = "--dedup-keep"


def scores(config: Config, parts: Sequence[Member]) -> Scores | None:
    """What each example is worth among its equals, more is better, NaN without a value; None where
    the first stays.

    Raises:
        DataError: the column holds something else than numbers.
        UsageError: no row has it.
    """
    keep = Keep.of(config.plan.dedup_keep)
    if not keep.column:
        return None
    found: list[Scores] = [np.zeros(0)] * len(parts)
    types = set()
    for number in range(len(config.sources)):
        paths = config.only(number).carried.paths
        mine = [at for at, part in enumerate(parts) if part.numbers.source == number]
        seen = over([parts[at] for at in mine], paths)
        type_ = seen.type_of(keep.column, _OPTION)
        if type_ not in (NUMBER, NOTHING):
            row = next(iter(seen.first[keep.column].values()))
            raise DataError(
                f"{_OPTION} compares {keep.column}, which is {WORDS[type_]} in {row}.",
                "Name a column of numbers, or leave it out to keep the first of equal examples.",
            )
        types.update([type_] if seen.rows else [])
        for at in mine:
            values = at_path(parts[at].source.read((VALUES,)), paths, keep.column)
            whole = values.field("whole").cast(pa.float64(), safe=False)
            number_ = pc.fill_null(pc.coalesce(whole, values.field("number")), float("nan"))
            found[at] = number_.to_numpy() * (1 if keep.highest else -1)
    if types == {NOTHING}:
        raise UsageError(
            f"{_OPTION} compares {keep.column}, and no row has a number in it.",
            "Name a column of the rows, with dots for what is inside (meta.score).",
        )
    return np.concatenate([np.zeros(0), *found])


# Looked up again in the records, in some rows of every batch, by code of its own: a value in the
# place of another row's would leave out the wrong example, and nothing else would show it.


ROWS = 16  # of each batch, evenly spaced


def _at(value: Any, path: str) -> Any:
    """What is at a path: a key with dots in it comes before what is inside."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _alike(stored: Mapping[str, Any], value: Any) -> bool:
    found = [one for one in stored.values() if one is not None]
    if value is None or value != value:  # NaN
        return not found
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)  # as it is stored
    if isinstance(value, list | dict):
        return found == [True] and stored["other"] is True
    return found == [value] and isinstance(found[0], bool) == isinstance(value, bool)


def check_values(
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
    for row in pa.table(batch).select(["line", VALUES]).take(pa.array(chosen)).to_pylist():
        record = records[row["line"]]
        for path, stored in zip(paths, row[VALUES], strict=True):
            if not _alike(stored, _at(record.data, path)):
                shown = json.dumps(path)
                raise ReadingError(
                    f"{place_of(row['line'])}: the value at {shown} is not that of the row."
                )
