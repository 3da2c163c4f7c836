"""The format of an input, by the evidence of a sample from its head, its middle and its tail.

Inputs come in splits, so the middle and the tail are found without reading what stands before
them. Of an input in one piece (a compressed file, say) only the beginning is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.config import Config
from pipeline.inputs import Input
from pipeline.questions import ask
from stages import column_names, formats, null_fields, readers
from stages.contract import Format, Record, Row, Split
from stages.detection import Detection, detect, settle
from stages.errors import AskError, DataError, UsageError
from stages.selection import Selection, lookup, names_something, renamed
from stages.survey import survey

SAMPLE_ROWS = 1000
_WINDOW_ROWS = 200_000  # of an input in one piece, and of the last piece of others
_WINDOW_BYTES = 16 << 20
_WINDOW_VALUES = 2 * _WINDOW_ROWS  # those that are no rows included: a value may be one byte


@dataclass(slots=True)
class Window:
    """The first rows of a split that parse, and why the first one that does not cannot."""

    rows: list[Row]
    error: str = ""
    typed: bool = False


def _window(split: Split, rows: int) -> Window:
    found = Window([])
    size = seen = 0
    for lines in readers.load(split.reader).read(split):
        seen += len(lines.records)
        for record in lines.records:
            size += len(record.raw)
            if record.data is not None:
                found.rows.append(record.data)
                found.typed = record.typed
            elif record.error and not found.error:
                found.error = f"line {record.line + 1}: {record.error[1]}"
            if len(found.rows) >= rows or size >= _WINDOW_BYTES:
                return found
        if seen >= _WINDOW_VALUES:
            return found
    return found


def way_on(error: str, path: str) -> str:
    """What to do about a file none of whose rows can be read."""
    if "UTF-8" in error:
        return f"Convert it, for example: iconv -f latin1 -t utf-8 {path} > utf8.jsonl"
    return "Give a file of JSON objects, one a line."


def _thirds(rows: list[Row], count: int) -> list[Row]:
    """The head, the middle and the tail of a list."""
    if len(rows) <= count:
        return rows
    tail = count // 3
    head = count - 2 * tail
    middle = (len(rows) - tail) // 2
    return rows[:head] + rows[middle : middle + tail] + rows[-tail:]


def sample(source: Input, count: int = SAMPLE_ROWS) -> tuple[list[Row], bool]:
    """Rows from the head, the middle and the tail of an input; whether a table typed them.

    Raises:
        DataError: no row of it can be read.
    """
    last = len(source.splits) - 1
    picked = sorted({0, last // 2, last}) if last >= 0 else []
    if len(picked) == 1:
        windows = [_window(source.splits[0], _WINDOW_ROWS)]
        rows = _thirds(windows[0].rows, count)
    else:
        share = -(-count // max(len(picked), 1))
        wanted = [_WINDOW_ROWS if at == last else share for at in picked]
        windows = [_window(source.splits[at], n) for at, n in zip(picked, wanted, strict=True)]
        rows = [row for window in windows[:-1] for row in window.rows]
        rows += windows[-1].rows[-(count - len(rows)) :] if windows else []
    if not rows:
        error = next((w.error for w in windows if w.error), "there are no rows in it")
        raise DataError(
            f"{source.path} has no row that can be read; {error}.", way_on(error, source.path)
        )
    return rows, any(window.typed for window in windows)


def _records(source: Input) -> Iterator[tuple[int, Record]]:
    """Every row of an input with its line in the file, from 1."""
    first = 1
    for split in source.splits:
        count = 0
        for lines in readers.load(split.reader).read(split):
            yield from ((first + record.line, record) for record in lines.records)
            count += lines.lines
        first += count


def _changed(source: Input, kinds: tuple[str, str], config: Config) -> DataError:
    """The error for a file whose rows are of two kinds: where the second kind begins."""
    pair = [formats.load(kind) for kind in kinds]
    selection, mapping = config.selection(), config.map
    begun: tuple[Format, str] | None = None
    for line, record in _records(source):
        if record.data is None or not selection.takes(record.data):
            continue
        row = renamed(selection.read(record.data), mapping)
        said = [(kind, reason) for kind in pair if (reason := kind.matches(row))]
        if begun is None and said:
            begun = said[0]
        elif begun is not None and said and all(kind is not begun[0] for kind, _ in said):
            return DataError(
                f"{source.name}:{line} has another shape than the rows before it: {said[0][1]} "
                f"({said[0][0].name}) after {begun[1]} ({begun[0].name}).",
                f"Split the file there, or add --format {begun[0].name} to have the other rows "
                "refused one by one.",
            )
    return DataError(f"{source.path} holds rows of two shapes.", "Name one with --format.")


def _columns_of(rows: list[Row]) -> str:
    return ", ".join(dict.fromkeys(itertools.chain(*rows[:10])))


def _require_named(where: str, rows: list[Row], config: Config) -> None:
    """Every column that ``--map``, ``--ignore`` or ``--where`` names stands in some row.

    Raises:
        UsageError: one stands in none.
    """
    missing = [
        (f"--map {name}={column}", column)
        for name, column in config.map.items()
        if all(lookup(row, column) is None for row in rows)
    ]
    missing += [
        (f"--ignore {path}", path)
        for path in config.ignore
        if not any(names_something(row, path) for row in rows)
    ]
    missing += [
        (f"--where {text}", asked.column)
        for text, asked in zip(config.where, config.selection().where, strict=True)
        if all(lookup(row, asked.column) is None for row in rows)
    ]
    for option, column in missing:
        raise UsageError(
            f"{option}: no sampled row of {where} has {column}.",
            f"Its columns: {_columns_of(rows)}.",
        )


def _require_read(names: Iterable[str], known: Iterable[str], whose: str) -> None:
    """Every NAME of ``--map`` is one that a format reads.

    Raises:
        UsageError: one is not; the message has the nearest names.
    """
    known = sorted(set(known))
    for name in names:
        if name not in known:
            near = column_names.nearest(name, known)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(
                f"--map {name}=...: {whose} reads no column named {name}.",
                f"{hint}It reads {', '.join(known)}.",
            )


def _taken(rows: list[Row], where: str, config: Config) -> list[Row]:
    """Sampled rows as their format sees them.

    Raises:
        DataError: ``--where`` takes none of them.
    """
    selection = config.selection()
    taken = [renamed(selection.read(r), config.map) for r in rows if selection.takes(r)]
    if not taken:
        raise DataError(
            f"{where}: none of {len(rows)} sampled rows meets --where "
            f"{' and '.join(config.where)}.",
            f"Check the values; the first row has {_shown(rows[0], selection)}.",
        )
    return taken


def _with_nulls_settled(rows: list[Row], where: str, config: Config) -> list[Row]:
    try:
        return [null_fields.settled(row, config.null_fields) for row in rows]
    except AskError as error:
        raise DataError(f"{where}: {error.detail}.", error.remedy) from error


def _shown(row: Row, selection: Selection) -> str:
    return ", ".join(f"{c.column} {lookup(row, c.column)!r}"[:60] for c in selection.where)


def recognise_rows(raw: list[Row], where: str, config: Config, typed: bool = False) -> Detection:
    """The reading of some rows of a file; ``change`` is left to the caller.

    Args:
        typed: the rows come from a table with one type for all of them.

    Raises:
        UsageError: ``--format``, ``--map``, ``--ignore`` or ``--where`` names what is not there.
        DataError: the rows fit no format, or more than one, or a column that nothing would read
            must not be left out without a question.
    """
    named = None if config.format == "auto" else formats.choose(config.format, config.task)
    _require_named(where, raw, config)
    offered = formats.for_task(config.task) if named is None else [named]
    whose = f"format {named.name}" if named else f"no {config.task} format"
    _require_read(config.map, (n for f in offered for n in formats.names_of(f)), whose)
    rows = _taken(raw, where, config)
    if typed:
        rows = _with_nulls_settled(rows, where, config)
    if named is None:
        found = detect(rows, config.task, where, config.already_templated, config.map)
    else:
        found = _as_named(named, rows, where, config)
    if found.change is None:
        _require_read(config.map, formats.names_of(found.format), f"format {found.format.name}")
        seen = survey(rows, found.format, config.task, config.format_options(), config.selection())
        ask(seen, rows, found.reading, where, config)
    return found


def _as_named(named: Format, rows: list[Row], where: str, config: Config) -> Detection:
    """The reading that ``--format`` names."""
    fitting = [row for row in rows if named.matches(row)]
    reading, more = config.format, ""
    if "/" not in reading:
        reading, more = settle(named, fitting, where, config.already_templated)
    counts = {named.name: len(fitting)}
    evidence = f"named by --format, fits {len(fitting)} of {len(rows)} sampled rows{more}"
    return Detection(reading, evidence, len(rows), counts)


def recognise(source: Input, config: Config) -> Detection:
    """The reading of an input.

    Raises:
        UsageError, DataError: see ``recognise_rows``; also where its rows change shape.
    """
    rows, typed = sample(source)
    found = recognise_rows(rows, source.path, config, typed)
    if found.change is not None:
        raise _changed(source, found.change, config)
    return found
