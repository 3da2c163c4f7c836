"""The reading of a file on one page: every column, what its values are, and what becomes of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from pipeline.inputs.opening import format_options, selection_of
from pipeline.options.config import Config
from stages import formats
from stages.contract import Row
from stages.format import Format
from stages.formats._fields import tried
from stages.normalize.survey import survey
from stages.rows import judgements
from stages.rows.column_names import EMPTY, Watched
from stages.rows.selection import renamed
from stages.rows.shapes import shape_of
from stages.rows.speakers import is_turn

_OF_TURNS = {"role", "from", "content", "value"}  # keys that are what a turn is
_DEEPEST = 2  # keys inside keys that have a line of their own
_EXAMPLE = 60  # characters

LEFT_OUT, FILTER = "left out", "filter"


def _paths(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """A column, and what is inside of it: keys of objects, also of those in a list."""
    if isinstance(value, dict) and value and depth < _DEEPEST:
        for key, inner in value.items():
            yield from _paths(f"{name}.{key}", inner, depth + 1)
        return
    objects = isinstance(value, list) and any(isinstance(one, dict) and one for one in value)
    turns = objects and all(map(is_turn, value))
    if turns or not objects or depth == _DEEPEST:
        yield name, value
    if objects and depth < _DEEPEST:
        for key in dict.fromkeys(key for one in value if isinstance(one, dict) for key in one):
            said = [one.get(key) for one in value if isinstance(one, dict)]
            said = [one for one in said if one not in EMPTY]
            if said and not (turns and key in _OF_TURNS):
                yield f"{name}[].{key}", said


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Every path with its values that are not empty, a row each, in the order of the rows."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        for name, whole in row.items():
            for path, value in _paths(name, whole):
                values = found.setdefault(path, [])
                if value not in EMPTY:
                    values.append(value)
    return found


def _covers(column: str, path: str) -> bool:
    """Whether a path is a column, or stands inside it."""
    return path == column or path.startswith((f"{column}.", f"{column}["))


class _Roles:
    """What becomes of the columns of rows that a format reads."""

    def __init__(self, rows: Sequence[Row], reading: Format, config: Config) -> None:
        self._selection, options = selection_of(config), format_options(config)
        self._mapped = {**reading.renamed, **config.source.map}
        self._meant = {name: m for m, names in reading.columns.items() for name in names}
        taken = [self._selection.read(row) for row in rows if self._selection.takes(row)]
        taken = [renamed(row, self._mapped) for row in taken]
        self._left = survey(taken, reading, config.parts.kind, options, self._selection).columns
        self._read: set[str] = set()  # by the names that formats know
        for watched in map(Watched, taken):
            if not isinstance(tried(reading, watched, options), Exception):
                self._read |= watched.read_columns

    def of(self, path: str) -> str:
        """What becomes of a column: its role, ``left out``, or empty where nothing stands in it."""
        selection = self._selection
        if any(_covers(one, path) for one in selection.ignore):
            return LEFT_OUT
        decided = any(_covers(one, path) for one in selection.decided)
        each = [(name, one) for name, many in self._mapped.items() for one in many.split(",")]
        by_source = {judgements.bare(one): name for name, one in reversed(each)}
        left = [column for one, column in self._left.items() if _covers(one, path)]
        seldom = all(2 * column.rows <= column.of_rows for column in left)  # where rows are odd
        if left and not decided and not (seldom and (path in by_source or path in self._read)):
            return LEFT_OUT
        name = next((n for source, n in by_source.items() if _covers(source, path)), None)
        name = name or next((n for n in self._read if _covers(n, path)), None)
        if name is None:
            return FILTER if decided else ""
        return self._meant.get(name, "read")


def lines(
    rows: Sequence[Row], reading: str, config: Config, asked: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The page of some rows, as ``--json`` has it.

    Args:
        rows: as the file has them.
        reading: as ``formats.load`` takes it; empty where none was found.
        asked: why a column is asked about, by its path.

    Returns:
        Each ``column``, or key inside of columns, by its path as ``--map`` and ``--ignore`` take it
        (``answers[].score``): the ``rows`` with a value ``of`` all; what the ``values`` are, in
        words, and the first as an ``example``; what it ``becomes``: its role, ``left out``, or
        ``filter``; ``why`` leaving it out may change what is trained, or nothing.
    """
    roles = _Roles(rows, formats.load(reading), config) if reading else None
    return [
        {
            "column": path,
            "rows": len(values),
            "of": len(rows),
            "values": shape_of(values) if values else "empty",
            "example": _shown(values[0]) if values else "",
            "becomes": roles.of(path) if roles is not None else "",
            "why": next((why for column, why in asked.items() if _covers(column, path)), ""),
        }
        for path, values in _columns(rows).items()
    ]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    text = " ".join(text.split())
    return text if len(text) <= _EXAMPLE else f"{text[: _EXAMPLE - 3]}..."
