"""Cells of tables of texts that may be JSON: the user has to say so before a build begins."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson

from pipeline.options.config import Config
from stages import readers
from stages.contract import Record, Row
from stages.errors import DataError
from stages.readers._delimited import Delimited


@contextmanager
def asked_about_cells(
    rows: Sequence[Row], where: str, config: Config, reader: str
) -> Iterator[Sequence[Row]]:
    """The rows to be recognised, unless cells must be asked about first; a refusal of them says
    what the cells could be.

    Args:
        reader: the name of the file's reader, which may not know yet which cells are JSON.

    Raises:
        DataError: all cells of a column are JSON lists or objects, and nobody said what they are.
    """
    known = readers.load(reader)
    if not isinstance(known, Delimited):
        yield rows
        return
    decided = {**known.cells, **config.source.cells}
    open_to_doubt = [c for c in rows[0] if c not in decided and c not in config.source.ignore]
    kinds = {column: _kind([row[column] for row in rows]) for column in open_to_doubt}
    _require_said({c: kind for c, kind in kinds.items() if kind in ("lists", "objects")}, where)
    as_json = _as_json(config, known)
    try:
        yield [_parsed(row, as_json) for row in rows]
    except DataError as error:
        named = [c for c, kind in kinds.items() if kind == "scalars" and c in error.what]
        plain = [f"--cells {column}=json" for column in named]
        if plain:
            said = f"To read numbers, true and false as values, add {' '.join(plain)}."
            error.remedy = f"{error.remedy} {said}".lstrip()
            error.args = (error.what, error.remedy)
        raise


def _as_json(config: Config, known: Delimited) -> set[str]:
    """The columns whose cells are JSON by an option that a file was not opened with."""
    said = {column for column, kind in config.source.cells.items() if kind == "json"}
    return said.difference(known.cells)


def _parsed(row: Row, as_json: set[str]) -> Row:
    return {**row, **{c: orjson.loads(row[c]) for c in as_json & row.keys()}} if as_json else row


def parsed(records: Sequence[Record], config: Config, reader: str) -> list[Record]:
    """Sampled records with the cells that ``--cells`` says to be JSON."""
    known = readers.load(reader)
    as_json = _as_json(config, known) if isinstance(known, Delimited) else set()
    return [replace(one, data=one.data and _parsed(one.data, as_json)) for one in records]


def _require_said(nested: Mapping[str, str], where: str) -> None:
    """Raises DataError if there are such columns."""
    if not nested:
        return
    first, *more = nested
    others = f" (and of {', '.join(more)})" if more else ""
    ways = [" ".join(f"--cells {column}={kind}" for column in nested) for kind in ("json", "text")]
    raise DataError(
        f"{where}: the cells of column {first!r}{others} are JSON {nested[first]}, but cells are "
        "read as text unless --cells says that they are JSON.",
        f"Say which: {ways[0]} or {ways[1]}.",
    )


def _kind(cells: Sequence[str]) -> str:
    """What all cells of a column are that have something in them; empty where they differ."""
    kinds = {_kind_of(cell) for cell in cells if cell.strip()}
    return kinds.pop() if len(kinds) == 1 else ""


def _kind_of(cell: str) -> str:
    try:
        value: Any = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(value, list):
        return "lists"
    if isinstance(value, dict):
        return "objects"
    return "" if isinstance(value, str) else "scalars"
