"""Whole lines of JSON, parsed when somebody asks for their rows.

Most rows of a file become columns together, and nobody needs a record of them. So a block keeps its
bytes, and makes records for those who look at single rows: refused ones, sampled ones, odd ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

from stages import late
from stages.contract import Record, Row
from stages.errors import RowError
from stages.files import strict_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = late.module("numpy")

BOM = b"\xef\xbb\xbf"
Ints: TypeAlias = "npt.NDArray[np.int64]"


def record(line: int, offset: int, raw: bytes, longest: int) -> Record:
    """The record of one line, without its end."""
    if len(raw) > longest:
        return too_long(line, offset, raw, longest=longest, length=len(raw))
    try:
        return Record(line, offset, raw, strict_json.parse(raw))
    except RowError as error:
        return Record(line, offset, raw, data=None, error=(error.code, error.detail))


def too_long(line: int, offset: int, raw: bytes, longest: int, length: int) -> Record:
    """The record of a line with too many bytes, of which only the first are kept."""
    detail = f"{length} bytes in one line; the limit is {longest}"
    return Record(line, offset, raw[:4096], data=None, error=("line_too_long", detail))


class LineBlock(Sequence[Record]):
    """The rows of some whole lines. Blank lines are no rows.

    Args:
        content: the lines, the last one without its end.
        first: number of the first line; ``offset``: of its first byte.
        at_start: a byte-order mark may stand at offset 0.
        longest: bytes of a line that is read.
    """

    def __init__(
        self, content: bytes, first: int, offset: int, at_start: bool, longest: int
    ) -> None:
        self.content = content
        self.longest = longest
        self._first, self._offset = first, offset
        self._marked = at_start and offset == 0 and content.startswith(BOM)

    @functools.cached_property
    def starts(self) -> Ints:
        """Where each line starts in the content, and where one behind the last would."""
        ends = np.flatnonzero(np.frombuffer(self.content, np.uint8) == ord("\n"))
        return np.concatenate([[0], ends + 1, [len(self.content) + 1]]).astype(np.int64)

    @functools.cached_property
    def line_count(self) -> int:
        """How many lines there are, blank ones included."""
        return self.content.count(b"\n") + 1

    def raw(self, place: int) -> bytes:
        """One line without its end."""
        return self.content[self.starts[place] : self.starts[place + 1] - 1]

    def cut(self, lines: int) -> Iterator[LineBlock]:
        """The same lines in blocks of at most so many."""
        if self.line_count <= lines:
            yield self
            return
        for place in range(0, self.line_count, lines):
            begin, end = self.starts[place], self.starts[min(place + lines, self.line_count)] - 1
            yield LineBlock(
                self.content[begin:end],
                self._first + place,
                self._offset + int(begin),
                at_start=self._marked,
                longest=self.longest,
            )

    @functools.cached_property
    def _rows(self) -> list[Row] | None:
        """The rows of all lines; None where these are parsed one by one."""
        lines = self.content.split(b"\n")
        long = len(self.content) > self.longest and max(map(len, lines)) > self.longest
        if long or b"\r" in self.content:
            return None
        return strict_json.parse_all(lines, self.content)

    @functools.cached_property
    def _records(self) -> dict[int, Record]:
        """By place, what lines are that are parsed one by one."""
        found = {}
        for place, line in enumerate(self.content.split(b"\n")):
            offset, body = self._offset + int(self.starts[place]), line
            if self._marked and place == 0:
                offset, body = offset + len(BOM), body[len(BOM) :]
            body = body.removesuffix(b"\r")
            if body.strip():
                found[place] = record(self._first + place, offset, body, self.longest)
        return found

    def _record(self, place: int) -> Record:
        if self._rows is None:
            return self._records[place]
        raw, offset = self.raw(place), self._offset + int(self.starts[place])
        return Record(self._first + place, offset, raw, self._rows[place])

    @functools.cached_property
    def places(self) -> Ints:
        """Which of the lines are rows."""
        if self._rows is None:
            return np.array([*self._records], np.int64)
        return np.arange(self.line_count)

    @property
    def lines(self) -> Ints:
        """The number of each row's line."""
        return self._first + self.places

    def data(self) -> Sequence[Row | None]:
        """What was parsed of the rows; None for one that could not be."""
        if self._rows is None:
            return [record.data for record in self._records.values()]
        return self._rows

    @property
    def by_line(self) -> Mapping[int, Record]:
        """The records by the number of their line."""
        return _ByLine(self)

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, row: int) -> Record: ...
    @overload
    def __getitem__(self, row: slice) -> list[Record]: ...
    def __getitem__(self, row: int | slice) -> Record | list[Record]:
        places = self.places
        if isinstance(row, slice):
            return [self._record(place) for place in places[row].tolist()]
        return self._record(int(places[row]))

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, self.places.tolist())


def lines_of(records: Sequence[Record], rows: Sequence[int]) -> list[int]:
    """The numbers of the lines of some records."""
    if isinstance(records, LineBlock):
        lines: list[int] = records.lines[np.array(rows, np.int64)].tolist()
        return lines
    return [records[row].line for row in rows]


class _ByLine(Mapping[int, Record]):
    """The records of a block by the number of their line."""

    def __init__(self, block: LineBlock) -> None:
        self._block = block

    def __getitem__(self, line: int) -> Record:
        lines = self._block.lines
        row = int(np.searchsorted(lines, line))
        if row == len(lines) or lines[row] != line:
            raise KeyError(line)  # it is no row of the block
        return self._block[row]

    def __iter__(self) -> Iterator[int]:
        return iter(self._block.lines.tolist())

    def __len__(self) -> int:
        return len(self._block)
