"""Tables of texts (CSV, TSV), plain, gzip or zstandard: a header, and a row per line or lines.

Nothing is guessed. The suffix or an option says what separates cells, and every cell is text, but
for those of columns that ``--cells`` calls JSON. How a file is read is part of its reader's name,
``csv/{"delimiter": ";"}``, and so of all that is made with it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Any, TypeAlias

from stages.contract import Glimpse, Lines, Record, Row, Split
from stages.errors import ContainerError, RowError, UsageError
from stages.files import content, line_block
from stages.readers import _tables, _values
from stages.readers._cells import Grammar, Raw, Rows

RFC4180, NONE = ("rfc4180", "none")
_NAMES = {",": "comma-separated", "\t": "tab-separated"}
_OTHERS = ";\t|,"  # that a header of one column is searched for
_WIDTH = "row_width"
Header: TypeAlias = dict[str, bool]  # by column, whether its cells are JSON


@dataclass(frozen=True)
class Delimited(content.Whole):
    """The reader of one delimiter.

    Attributes:
        about: what its files are, in a sentence.
        stated: somebody has said that this is the delimiter, beside the file's suffix.
        cells: by column, ``json`` or ``text``; other columns are text.
    """

    container: str
    suffixes: tuple[str, ...]
    delimiter: str
    quoting: str = RFC4180
    cells: Mapping[str, str] = field(default_factory=dict)
    stated: bool = False
    about: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.about)

    @property
    def name(self) -> str:
        settings: dict[str, Any] = {"delimiter": self.delimiter} if self.stated else {}
        settings |= {"quoting": self.quoting} if self.quoting != RFC4180 else {}
        settings |= {"cells": dict(sorted(self.cells.items()))} if self.cells else {}
        return f"{self.container}/{json.dumps(settings)}" if settings else self.container

    @property
    def words(self) -> str:
        """How it reads a file, for who is told what was done."""
        said = _NAMES.get(self.delimiter, f"separated by {self.delimiter!r}")
        said += ", quotes as in RFC 4180" if self.quoting == RFC4180 else ", quotes are text"
        columns = [name for name, kind in self.cells.items() if kind == "json"]
        return said + (f", JSON in {', '.join(columns)}" if columns else "")

    def told(self, settings: str) -> "Delimited":
        """The same with what stands behind the slash of a reader's name."""
        said = {"delimiter": None, "quoting": RFC4180, "cells": {}, **json.loads(settings)}
        return self.having(**said)

    def having(self, delimiter: str | None, quoting: str, cells: Mapping[str, str]) -> "Delimited":
        """The same with options of a source; None is what the suffix says."""
        stated = delimiter is not None
        used = self.delimiter if delimiter is None else delimiter
        return replace(self, delimiter=used, quoting=quoting, cells=cells, stated=stated)

    def read(self, split: Split) -> Iterator[Lines]:
        return content.unsplit(split, self._records)

    def glimpse(self, source: content.Source, rows: int, salvage: bool = False) -> Glimpse:
        path = content.path_of(source)
        with content.opened(source, salvage=True) as file:  # damage is told where rows are read
            head = file.read(_values.HEAD)
        _values.refuse_other_encodings(path, head)
        if b"\0" in head.partition(b"\n")[0]:  # in the header; further on, one row has it
            raise _values.binary(path, head.index(0), "text")

        found = _tables.first_rows(source, lambda file, _: self._records(file, path), rows, salvage)
        wrong = [one for one in found.records if one.error and one.error[0] == _WIDTH]
        if len(wrong) * 2 > len(found.records):
            raise ContainerError(
                f"{path}:{wrong[0].line + 1}: {_said(wrong[0])}; most sampled rows are "
                f"like it ({self.words}).",
                _OTHER_WAYS,
            )
        return found

    def _records(self, file: IO[bytes], path: str) -> Iterator[Lines]:
        rows = Rows(file, Grammar(self.delimiter, self.quoting == RFC4180), path)
        return _values.in_batches(self._each(rows, file), lambda: rows.lines)

    def _each(self, rows: Rows, file: IO[bytes]) -> Iterator[Record | None]:
        """Every row behind the header as a record; None for the header and for blank lines."""
        header: Header | None = None
        for row in rows:
            record = None
            if row.text and header is None:
                header = self._header(row, rows)
            elif row.text and header is not None:
                record = _record(row, header, rows, file)
            yield record

    def _header(self, row: Raw, rows: Rows) -> Header:
        grammar = rows.grammar
        try:
            given = [grammar.value(cell).decode() for cell in grammar.cells(row.text)]
        except UnicodeDecodeError as error:
            raise rows.broken(row.line, f"the header is not UTF-8 ({error.reason})") from error
        # A column without a name is often a row's number; it is named by its place.
        names = [name or f"column_{place}" for place, name in enumerate(given, 1)]
        if any(map(grammar.is_stray, grammar.cells(row.text))):
            raise rows.broken(row.line, "the header has a quote in a cell that is not in quotes")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise rows.broken(row.line, f"two columns are called {twice!r}", "Rename one of them.")
        self._require_separated(names, row, rows)
        unknown = next((name for name in self.cells if name not in names), None)
        if unknown is not None:
            raise UsageError(
                f"--cells {unknown}: {rows.path} has no such column.",
                f"Its columns: {', '.join(names)}.",
            )
        return {name: self.cells.get(name) == "json" for name in names}

    def _require_separated(self, names: list[str], row: Raw, rows: Rows) -> None:
        """A header of one column that has another usual delimiter in it is asked about."""
        if len(names) > 1 or self.stated or row.text.startswith(b'"'):
            return
        other = next((one for one in _OTHERS if one in names[0]), None)
        if other is not None:
            spelled = "tab" if other == "\t" else f"'{other}'"
            mine = "tab" if self.delimiter == "\t" else f"'{self.delimiter}'"
            raise ContainerError(
                f"{rows.path}:{row.line + 1}: the header has one column, {names[0]!r} "
                f"({self.words}).",
                f"Say what separates cells: --delimiter {spelled}, or --delimiter {mine} if it is "
                "one column.",
            )


_OTHER_WAYS = (
    "Say what separates cells with --delimiter (';', tab or another character), or that quotes are "
    "text with --quoting none."
)


def _said(record: Record) -> str:
    return record.error[1] if record.error else ""


def _record(row: Raw, header: Header, rows: Rows, file: IO[bytes]) -> Record:
    """The record of one row.

    Raises:
        ContainerError: a quote in it leaves open where rows end.
    """
    try:
        if not row.ended and content.damage_of(file):
            raise RowError("cut_off", "the file breaks off in this row")
        return Record(row.line, row.offset, row.text, _parsed(row, header, rows))
    except RowError as error:
        reason = (error.code, error.detail)
        return Record(row.line, row.offset, row.text, data=None, error=reason)


def _parsed(row: Raw, header: Header, rows: Rows) -> Row:
    grammar = rows.grammar
    cells = grammar.cells(row.text)
    if b'"' in row.text:
        for number, cell in enumerate(cells, 1):
            if grammar.is_stray(cell):
                if cell.lstrip().startswith(b'"'):
                    what = f"cell {number} has blanks before its quote"
                    raise rows.broken(row.line, f"{what}, so the end of the row is not known")
                raise RowError("stray_quote", f"cell {number} has a quote, but is not in quotes")
        cells = list(map(grammar.value, cells))
    if len(cells) != len(header):
        raise RowError(_WIDTH, f"{len(cells)} cells, but the header has {len(header)}")
    if b"\0" in row.text:
        raise RowError("zero_byte", f"byte {row.text.index(0)} of the row is 0x00")
    line_block.require_utf8(row.text)
    data: Row = dict(zip(header, map(bytes.decode, cells), strict=True))
    for name in filter(header.get, header):
        data[name] = _json(name, data[name])
    return data


def _json(name: str, text: str) -> Any:
    """The value of a cell; an empty one is null.

    Raises:
        RowError: it is no JSON.
    """
    if not text.strip():
        return None
    try:
        row = line_block.parse(b'{"":%b}' % text.encode())
    except RowError as error:
        raise RowError(error.code, f"column {name}: {error.detail}") from error
    if len(row) != 1:
        raise RowError("bad_json", f"column {name}: not one JSON value")
    return row[""]


_ABOUT = "separated values with a header, plain, gzip or zstandard; every cell is text."
CSV = Delimited("csv", (".csv", ".csv.gz", ".csv.zst"), ",", about=f"Comma-{_ABOUT}")
TSV = Delimited("tsv", (".tsv", ".tsv.gz", ".tsv.zst"), "\t", about=f"Tab-{_ABOUT}")
