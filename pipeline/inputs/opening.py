"""Which reader a file of a source gets, what the source's options tell it, and how its rows and
cells are read."""

import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipeline.options.build_options import OPTIONS, SourceOptions
from pipeline.options.config import Config
from pipeline.options.many_values import Keep
from pipeline.sources import Located
from stages import contract, formats, readers
from stages.contract import Record, Row
from stages.errors import DataError, UsageError, did_you_mean
from stages.format import Format
from stages.kinds import Kind
from stages.normalize.role_names import maps
from stages.readers._delimited import RFC4180, Delimited
from stages.rows.expressions import FIGURES, Expression, parse
from stages.rows.selection import Selection, condition, lookup

if TYPE_CHECKING:
    from pipeline.inputs.scan import Input

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


def reader_of(file: "Located | Input", options: SourceOptions) -> contract.Reader:
    """What reads a file.

    Raises:
        UsageError: nothing does.
    """
    name = file.reader or readers.of_path(file.path)
    if name is None and Path(file.path).suffix.lower() in _SHEETS:
        raise UsageError(
            f"{file.origin} is a spreadsheet, whose cells are formulas, dates and formats.",
            "Export each sheet as CSV UTF-8 and give the .csv file. Without a screen: "
            f"{_EXPORT} {shlex.quote(file.origin)}",
        )
    if name is None:
        known = f"Known: {', '.join(sorted(readers.suffixes()))}."
        raise UsageError(f"{file.origin}: no reader for this suffix.", known)
    reader = readers.load(name)
    if isinstance(reader, Delimited):
        return reader.having(options.delimiter, options.quoting, options.cells)
    return reader


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


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Sampled rows of a file, and how they are read.

    Attributes:
        rows: as formats get them; ``raw``: with all that the file has.
        where: what a message calls the file.
        reading: as ``formats.load`` takes it; empty until one is found.
    """

    rows: list[Row]
    raw: list[Row]
    where: str
    config: Config
    reading: str = ""

    @property
    def format(self) -> Format:
        """The format that reads them."""
        return formats.load(self.reading)

    @property
    def kind(self) -> Kind:
        """Of the task's examples."""
        return self.config.parts.kind

    def which(self, what: str, ways: Sequence[str]) -> DataError:
        """The question about something in these rows, with the answers to choose from."""
        remedy = f"Say which: {', or '.join(ways)}." if ways else ""
        return DataError(f"{self.where}: {what}", remedy)


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
    known = {*itertools.chain(*map(_paths, rows))} if config.source.filter else set()
    for expression in map(parse, config.source.filter if rows else ()):
        for name in set(expression.figures) - {*config.source.ignore, "margin"}:
            if name not in expression.columns and any(row.get(name) is not None for row in rows):
                raise called_like_a_figure(name, where)
        for path in set(expression.columns) - expression.expected:
            nowhere = all(lookup(row, path) is None for row in rows)
            if nowhere and did_you_mean(path, {*known, *FIGURES}):
                raise unknown(expression, path, f"no sampled row of {where}", known)
    keep = Keep.of(config.plan.dedup_keep).column
    if keep and all(lookup(row, keep) is None for row in rows):
        what = f"--dedup-keep compares {keep}, and no sampled row of {where} has a value in it."
        if meant := did_you_mean(keep, {*itertools.chain(*map(_paths, rows))}, most=1):
            raise UsageError(what, meant)


def _paths(row: Row, before: str = "", deepest: int = 3) -> Iterator[str]:
    """The paths of all columns of a raw row, with those inside of objects."""
    for key, value in row.items():
        yield f"{before}{key}"
        if isinstance(value, dict) and deepest > 1:
            yield from _paths(value, f"{before}{key}.", deepest - 1)


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
    if nested := [c for c, kind in kinds.items() if kind in ("lists", "objects")]:
        first, *more = nested
        others = f" (and of {', '.join(more)})" if more else ""
        raise DataError(
            f"{where}: the cells of column {first!r}{others} are JSON {kinds[first]}, but cells "
            "are read as text unless --cells says that they are JSON.",
            f"Say which: {_cells(nested, 'json')} or {_cells(nested, 'text')}.",
        )
    as_json = _as_json(config, known)
    try:
        yield [_parsed(row, as_json) for row in rows]
    except DataError as error:
        named = [c for c, kind in kinds.items() if kind == "scalars" and c in error.what]
        if named:
            said = f"To read numbers, true and false as values, add {_cells(named, 'json')}."
            error.remedy = f"{error.remedy} {said}".lstrip()
        raise


def _cells(columns: Iterable[str], kind: str) -> str:
    """The options that say what the cells of some columns are."""
    return " ".join(f"--cells {shlex.quote(f'{column}={kind}')}" for column in columns)


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


def _kind(cells: Sequence[str]) -> str:
    """What all cells of a column are that have something in them; empty where they differ."""
    kinds = {_kind_of(cell) for cell in cells if cell.strip()}
    return kinds.pop() if len(kinds) == 1 else ""


_OF_JSON: Mapping[type, str] = {list: "lists", dict: "objects", str: ""}


def _kind_of(cell: str) -> str:
    try:
        kind = type(orjson.loads(cell))
    except orjson.JSONDecodeError:
        return ""
    return _OF_JSON.get(kind, "scalars")


def lists_of_texts(listed: Sequence[str], read: SampledRows) -> DataError:
    """The question about columns of lists as text: a list may be an answer as it stands, but nobody
    asks in one."""
    inside = maps(listed, [f"{name}[json]" for name in listed])
    columns = read.format.columns
    asked = {name for one in ("question", "prompt", "problem") for name in columns.get(one, ())}
    whole = "" if asked & {*listed} else f", or the text as it stands with {maps(listed, listed)}"
    said = "Say which: read" if whole else "Read"
    return DataError(
        f"{read.where}: lists stand as text in {' and '.join(listed)}.",
        f"{said} what is inside with {inside}{whole}.",
    )
