"""The format of an input, by the evidence of a sample from its head, its middle and its tail.

Inputs come in splits, so the middle and the tail are found without reading what stands before
them. Of an input in one piece (a compressed file, say) only the beginning is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.config import Config
from pipeline.inputs import Input
from stages import formats, readers
from stages.contract import Format, Record, Row, Split
from stages.detection import Detection, detect, settle
from stages.errors import DataError, UsageError
from stages.normalize import lookup, renamed

SAMPLE_ROWS = 1000
_WINDOW_ROWS = 200_000  # of an input in one piece, and of the last piece of others
_WINDOW_BYTES = 16 << 20
_WINDOW_VALUES = 2 * _WINDOW_ROWS  # those that are no rows included: a value may be one byte


@dataclass(slots=True)
class Window:
    """The first rows of a split that parse, and why the first one that does not cannot."""

    rows: list[Row]
    error: str = ""


def _window(split: Split, rows: int) -> Window:
    found = Window([])
    size = seen = 0
    for lines in readers.load(split.reader).read(split):
        seen += len(lines.records)
        for record in lines.records:
            size += len(record.raw)
            if record.data is not None:
                found.rows.append(record.data)
            elif record.error and not found.error:
                found.error = f"line {record.line + 1}: {record.error[1]}"
            if len(found.rows) >= rows or size >= _WINDOW_BYTES:
                return found
        if seen >= _WINDOW_VALUES:
            return found
    return found


def _thirds(rows: list[Row], count: int) -> list[Row]:
    """The head, the middle and the tail of a list."""
    if len(rows) <= count:
        return rows
    tail = count // 3
    head = count - 2 * tail
    middle = (len(rows) - tail) // 2
    return rows[:head] + rows[middle : middle + tail] + rows[-tail:]


def sample(source: Input, count: int = SAMPLE_ROWS) -> list[Row]:
    """Rows from the head, the middle and the tail of an input.

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
            f"{source.path} has no row that can be read; {error}.", "Give a file of JSON objects."
        )
    return rows


def _records(source: Input) -> Iterator[tuple[int, Record]]:
    """Every row of an input with its line in the file, from 1."""
    first = 1
    for split in source.splits:
        count = 0
        for lines in readers.load(split.reader).read(split):
            yield from ((first + record.line, record) for record in lines.records)
            count += lines.lines
        first += count


def _changed(source: Input, kinds: tuple[str, str], mapping: Mapping[str, str]) -> DataError:
    """The error for a file whose rows are of two kinds: where the second kind begins."""
    pair = [formats.load(kind) for kind in kinds]
    begun: tuple[Format, str] | None = None
    for line, record in _records(source):
        if record.data is None:
            continue
        row = renamed(record.data, mapping)
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


def _require_mapped(where: str, rows: list[Row], mapping: Mapping[str, str]) -> None:
    """Every column that ``--map`` names stands in some row.

    Raises:
        UsageError: one stands in none.
    """
    for name, column in mapping.items():
        if all(lookup(row, column) is None for row in rows):
            keys = ", ".join(dict.fromkeys(itertools.chain(*rows[:10])))
            raise UsageError(
                f"--map {name}={column}: no sampled row of {where} has {column}.",
                f"Its columns: {keys}.",
            )


def recognise_rows(raw: list[Row], where: str, config: Config) -> Detection:
    """The reading of some rows of a file; ``change`` is left to the caller.

    Raises:
        UsageError: ``--format`` or ``--map`` names what is not there.
        DataError: the rows fit no format, or more than one.
    """
    named = None if config.format == "auto" else formats.choose(config.format, config.task)
    mapping = dict(config.map)
    _require_mapped(where, raw, mapping)
    rows = [renamed(row, mapping) for row in raw]
    if named is None:
        return detect(rows, config.task, where, config.already_templated, mapping)
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
    found = recognise_rows(sample(source), source.path, config)
    if found.change is not None:
        raise _changed(source, found.change, dict(config.map))
    return found
