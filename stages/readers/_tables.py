"""Rows of Arrow tables as records: every value as the file holds it, by the file's own schema."""

from __future__ import annotations

import base64
import bisect
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import IO, Any

from stages import errors, files
from stages.contract import Glimpse, Lines, Record
from stages.files import content
from stages.files.content import Source
from stages.late import np, pa
from stages.readers import _cells

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
    said, undecodable = " ".join(str(error).split()), isinstance(error, UnicodeDecodeError)
    refused = Record(number, offset=None, raw=b"", data=None)
    return replace(refused, error=("bad_encoding" if undecodable else "bad_value", said))


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
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # slower so, and the values are the same
        return part


def records(
    batches: Iterable[pa.RecordBatch], size: int, share: float = 1.0, plain: pa.Schema | None = None
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
            raise errors.ContainerError(f"Two columns are called {twice!r}.", "Rename one of them.")
        coded = {field.name: field.type for field in whole.schema if _has_json(field.type)}
        weights = (_cells.of(column, size) for column in whole.columns)
        sums = text + np.cumsum(sum(weights, np.zeros(whole.num_rows, np.int64)))
        start, before, text = 0, text, int(sums.max(initial=text))
        files.require_text(size, round(text / share))
        while start < whole.num_rows:
            fitting = int(np.searchsorted(sums, before + HELD, "right"))
            stop = min(max(fitting, start + 1), start + BATCH_ROWS)
            part = _slice(_decoded_as(plain, whole.slice(start, stop - start)), number, coded)
            start, before, number = stop, int(sums[stop - 1]), number + len(part)
            yield Lines(part, len(part))


# A sample of a file's rows without reading all of it, and an estimate of their number.


WINDOW = 1 << 20  # bytes that are read in one place
FETCHED = 1 << 16  # that are fetched first, where they have to be
MOST = 200_000  # rows that are read at most, however small they are
Records = Callable[[IO[bytes], bool], Iterator[Lines]]


def spread(records: list[Record], rows: int) -> list[Record]:
    """At most so many of the records: a third each from the head, the middle and the tail."""
    if len(records) <= rows:
        return records
    third = max(1, rows // 3)
    middle = (len(records) - third) // 2
    tail = len(records) - third
    return records[:third] + records[middle : middle + third] + records[tail:]


def of(records: list[Record], rows: int) -> Glimpse:
    """A sample from all records of a file."""
    chosen = spread(records, rows)
    where = "all rows" if chosen is records else "head, middle and tail"
    return Glimpse(chosen, where, len(records), exact=True)


def first_rows(source: Source, records: Records, rows: int, salvage: bool = False) -> Glimpse:
    """A sample from all rows of a small file, or from the first megabytes of a large one in which
    reading cannot start in the middle."""
    size = content.size_of(source)
    records_read: list[Record] = []
    with content.opened(source, salvage) as file:
        ended = True
        try:
            for lines in files.counted(records(file, True), content.path_of(source), size):
                records_read += lines.records
                far = (records_read[-1].offset or 0) > 3 * WINDOW if records_read else False
                if len(records_read) >= rows and (far or len(records_read) >= MOST):
                    ended = False
                    break
        except errors.ContainerError:
            if not salvage:
                raise
        inflated = size * content.expansion(file)
    if ended:
        return of(records_read, rows)
    last = records_read[-1]
    about = round(inflated / (((last.offset or 0) + len(last.raw)) / len(records_read)))
    return Glimpse(spread(records_read, rows), "the first megabytes", about, exact=False)


def _window(file: IO[bytes], start: int, longest: int, window: int) -> tuple[int, bytes]:
    """Whole lines from the first that begins at or after ``start``, and where it begins."""
    file.seek(start)
    if start:
        file.seek(start - 1)
        while (rest := file.readline(content.CHUNK)) and not rest.endswith(b"\n"):
            pass
        start = file.tell()
    block = file.read(window)
    if b"\n" not in block:
        return start, block + file.readline(longest)
    if len(block) == window:
        block = block[: block.rindex(b"\n") + 1]
    return start, block


def windows(source: Source, rows: int, records: Records, longest: int) -> Glimpse:
    """Rows of a file of lines, from its head, middle and tail. Where reading takes a transfer, no
    more bytes are read there than the rows take."""
    size = content.size_of(source)
    window = FETCHED if content.is_elsewhere(source) else WINDOW
    if size <= 3 * window:
        return first_rows(source, records, rows)
    sample: list[Record] = []
    seen = looked = 0
    third = max(1, rows // 3)
    with content.bytes_of(source) as file:
        for at_end, middle in ((False, 0), (False, size // 2), (True, 0)):
            while True:
                place = max(0, size - window) if at_end else middle
                start, block = _window(file, place, longest, window)
                lines = [r for part in records(io.BytesIO(block), place == 0) for r in part.records]
                if len(lines) >= third or window >= WINDOW:
                    break
                # As many bytes as these rows say that so many take, and a quarter more.
                enough = third * len(block) * 5 // (4 * max(len(lines), 1))
                window = min(max(enough, 2 * window), WINDOW)
            seen, looked = seen + len(lines), looked + start - place + len(block)
            for one in lines[-third:] if at_end else lines[:third]:
                there = replace(one, line=-1, offset=(one.offset or 0) + start)
                sample.append(there if place else one)
    about = round(size * seen / max(looked, 1))
    return Glimpse(sample, "head, middle and tail", about, exact=False)


def of_table(
    counts: list[int],
    rows: int,
    fetch: Callable[[int, int, int], pa.RecordBatch],
    size_of_file: int,
    enter: bool = True,
) -> Glimpse:
    """Rows of the first, the middle and the last non-empty piece of a table.

    Args:
        counts: rows of each piece.
        fetch: a slice of a piece, by number, first row and number of rows.
        enter: whether reading can start anywhere in a piece; else it starts at its first row.
    """
    starts = [0, *itertools.accumulate(counts)]
    total = starts[-1]
    third = max(1, rows // 3)
    places = [0, total // 2, max(0, total - third)] if total > rows else [0]
    wanted = third if total > rows else total
    sample: list[Record] = []
    for number, place in enumerate(places, 1):
        left = wanted
        while left and place < total:
            piece = bisect.bisect_right(starts, place) - 1
            at = place - starts[piece] if enter or len(places) == 1 else 0
            size = min(left, counts[piece] - at)
            if not size:
                break
            first = starts[piece] + at
            for lines in records([fetch(piece, at, size)], size_of_file):
                sample += [replace(record, line=first + record.line) for record in lines.records]
                if sum(len(record.raw) for record in sample) > number * HELD:
                    break
            left -= size
            place = first + size
    sample = list({record.line: record for record in sample}.values())
    from_everywhere = bool(sample) and sample[-1].line >= len(sample)
    where = "head, middle and tail" if from_everywhere else "the first rows"
    return Glimpse(sample, where if len(sample) < total else "all rows", total, exact=True)
