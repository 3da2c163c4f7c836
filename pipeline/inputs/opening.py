"""Which reader a file of a source gets, what the source's options tell it, and how its rows and
cells are read."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from pipeline.options.build_options import OPTIONS, SourceOptions
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.options.source import Source
from pipeline.sources import Located
from stages import contract, formats, readers
from stages.contract import Record, Row
from stages.errors import DataError, PipelineError, UsageError, did_you_mean
from stages.normalize.role_names import maps
from stages.readers._delimited import RFC4180, Delimited
from stages.rows.expressions import FIGURES, Expression, parse
from stages.rows.selection import Selection, condition, lookup

_SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
# The filter's settings: comma, double quote, UTF-8.
_EXPORT = "soffice --headless --convert-to 'csv:Text - txt - csv (StarCalc):44,34,76'"


def opening_of(given: Mapping[str, Any]) -> SourceOptions:
    """How the files of a command line are opened; nothing else of a source is looked at.

    Raises:
        UsageError: a value is none of its option.
    """
    names = ("salvage", "delimiter", "quoting", "cells")
    values = {n: OPTIONS[n].value for n in names if given.get(n) is not None}
    return SourceOptions((), **{n: x.settled(x.loosened(given[n])) for n, x in values.items()})


def _of_tables(options: SourceOptions) -> str:
    """An option that tables of texts alone have, as it was given; empty where none was."""
    if options.delimiter is not None:
        return f"--delimiter {shlex.quote(options.delimiter)}"
    if options.quoting != RFC4180:
        return f"--quoting {options.quoting}"
    return next((f"--cells {name}={kind}" for name, kind in options.cells.items()), "")


def reader_of(file: Located, options: SourceOptions) -> contract.Reader:
    """What reads a file.

    Raises:
        UsageError: nothing does.
    """
    name = file.reader or readers.of_path(file.path)
    if name is None:
        raise _unread(file)
    reader = readers.load(name)
    if isinstance(reader, Delimited):
        return reader.having(options.delimiter, options.quoting, options.cells)
    return reader


def _unread(file: Located) -> UsageError:
    suffix = Path(file.path).suffix.lower()
    if suffix in _SHEETS:
        return UsageError(
            f"{file.origin} is a spreadsheet, whose cells are formulas, dates and formats.",
            "Export each sheet as CSV UTF-8 and give the .csv file. Without a screen: "
            f"{_EXPORT} {shlex.quote(file.origin)}",
        )
    return UsageError(
        f"{file.origin}: no reader for this suffix.",
        f"Known: {', '.join(sorted(readers.suffixes()))}.",
    )


def require_used(files: Sequence[Located], config: Config) -> None:
    """Options of tables of texts are for sources that have such files.

    Raises:
        UsageError: a source has none.
    """
    for number, source in enumerate(config.sources):
        said = _of_tables(source.options)
        names = [
            file.reader or readers.of_path(file.path)
            for file in files
            if said and file.source == number
        ]
        if said and not any(name and isinstance(readers.load(name), Delimited) for name in names):
            whose = f" of the source {source.name}" if source.name else ""
            raise UsageError(
                f"{said}: no input{whose} is a table of texts (.csv, .tsv).", "Leave it out."
            )


def format_options(config: Config) -> contract.FormatOptions:
    """The options that formats take."""
    return contract.FormatOptions(
        columns=dict(config.source.map),
        neutral=config.source.neutral,
        prompt_separator=config.source.prompt_separator,
        step_tag=config.source.step_tag,
        already_templated=config.source.already_templated,
        reasoning_in=config.source.reasoning_in,
        null_fields=config.source.null_fields,
    )


def selection_of(config: Config) -> Selection:
    """Which rows and columns are read."""
    source = config.source
    filtered: tuple[str, ...] = ()
    if source.filter:
        filtered = tuple(path for text in source.filter for path in parse(text).columns)
    return Selection(tuple(map(condition, source.where)), source.ignore, filtered, source.role)


@contextmanager
def said_of_source(source: Source) -> Iterator[None]:
    """Errors that offer an option also say which of the sources it is for, since an option of the
    command would be for all of them."""
    try:
        yield
    except PipelineError as error:
        if source.name and "--" in error.remedy:
            error.remedy = (
                f"{error.remedy} In the recipe, options of these rows are keys of the [[source]] "
                f"{source.name}."
            ).lstrip()
            error.args = (error.what, error.remedy)
        raise


# Names that filters read, and that no row has: probably misspelt.


def unknown(expression: Expression, path: str, where: str, known: Iterable[str]) -> UsageError:
    """The error of a name that nothing has."""
    remedy = (
        f"Figures of an example are {', '.join(FIGURES)}. Where the column may be absent "
        f"everywhere, write {path} IS NULL, or coalesce({path}, 0)."
    )
    return UsageError(
        f"--filter {expression.text!r} reads {path}, and {where} has a value in it.",
        did_you_mean(path, sorted({*known, *FIGURES}), remedy),
    )


def called_like_a_figure(name: str, where: str) -> UsageError:
    """The error of a name that could mean a figure or a column."""
    return UsageError(
        f"--filter reads the figure {name}, and {where} has a column {name} of its own.",
        f'For the column write "{name}" in double quotes; for the figure add --ignore {name}.',
    )


def require_known(config: Config, rows: Sequence[contract.Row], where: str) -> None:
    """A column that no sampled row has is not one that a sampled row nearly has, and no figure has
    the name of a column.

    Args:
        config: of one source; ``where``: what a message calls the file.

    Raises:
        UsageError: it is, so it is probably misspelt; or it could mean either.
    """
    known: set[str] = set()
    for expression in map(parse, config.source.filter if rows else ()):
        for name in set(expression.figures) - {*config.source.ignore, "margin"}:
            if name not in expression.columns and any(row.get(name) is not None for row in rows):
                raise called_like_a_figure(name, where)
        for path in set(expression.columns) - expression.expected:
            if all(lookup(row, path) is None for row in rows):
                known = known or _paths(rows)
                if did_you_mean(path, {*known, *FIGURES}):
                    raise unknown(expression, path, f"no sampled row of {where}", known)
    keep = Keep.of(config.plan.dedup_keep).column
    if keep and all(lookup(row, keep) is None for row in rows):
        what = f"--dedup-keep compares {keep}, and no sampled row of {where} has a value in it."
        if meant := did_you_mean(keep, _paths(rows), most=1):
            raise UsageError(what, meant)


def _paths(rows: Sequence[contract.Row], deepest: int = 3) -> set[str]:
    """The paths of all columns of some raw rows, with those inside of objects."""
    found: set[str] = set()
    waiting = [("", row, 1) for row in rows]
    while waiting:
        before, row, depth = waiting.pop()
        for key, value in row.items():
            path = f"{before}{key}"
            found.add(path)
            if isinstance(value, dict) and depth < deepest:
                waiting.append((f"{path}.", value, depth + 1))
    return found


# Cells of tables of texts that may be JSON: the user has to say so before a build begins.


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
        plain = [f"--cells {shlex.quote(f'{column}=json')}" for column in named]
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
    """A row with the JSON of some cells; a blank one is null."""
    cells = {c: row[c].strip() for c in as_json & row.keys()}
    return {**row, **{c: orjson.loads(cell) if cell else None for c, cell in cells.items()}}


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
    ways = [
        " ".join(f"--cells {shlex.quote(f'{column}={kind}')}" for column in nested)
        for kind in ("json", "text")
    ]
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


def lists_of_texts(listed: Sequence[str], reading: str, where: str) -> DataError:
    """The question about columns of lists as text: a list may be an answer as it stands, but nobody
    asks in one."""
    inside = maps(listed, [f"{name}[json]" for name in listed])
    columns = formats.load(reading).columns
    asked = {name for one in ("question", "prompt", "problem") for name in columns.get(one, ())}
    whole = "" if asked & {*listed} else f", or the text as it stands with {maps(listed, listed)}"
    said = "Say which: read" if whole else "Read"
    return DataError(
        f"{where}: lists stand as text in {' and '.join(listed)}.",
        f"{said} what is inside with {inside}{whole}.",
    )
