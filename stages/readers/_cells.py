"""Rows of a table of texts, with the places of their bytes: comma-separated values and their like.

The grammar is that of RFC 4180 and no more: a cell that begins with a quote ends with one, a quote
inside it is doubled, and only there may a row go on in another line. Where programs do not agree on
where a row ends, nothing behind that place is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from stages import errors, files
from stages.late import np, pa, pc
from stages.readers import _values

if TYPE_CHECKING:
    from stages.columns import Ints

WINDOW = 4 << 20  # bytes that are read at a time; more where one row has more
LONGEST = 64 << 20  # bytes of a row
_QUOTES = (
    "Write it as RFC 4180 has it: a cell with a quote in it stands in quotes, and the quote is "
    "doubled. Where quotes are text like any other: --quoting none."
)
_RETURN = "If its lines end in carriage returns, convert them: tr '\\r' '\\n'."


class Raw(NamedTuple):
    """One row as the file has it.

    Attributes:
        line: of its first byte, from 0; ``offset``: of that byte, from the start of the file.
        text: its bytes, without the end of its last line.
        ended: a line end follows it.
    """

    line: int
    offset: int
    text: bytes
    ended: bool


class Grammar:
    """How cells are separated and quoted.

    Args:
        delimiter: one character; ``quoted``: whether cells may stand in quotes.
    """

    def __init__(self, delimiter: str, quoted: bool) -> None:
        self._delimiter, self._quoted = delimiter.encode(), quoted
        one = re.escape(self._delimiter)
        # What was matched is never given back (+ after a repetition): one pass, however long.
        cell = rb"[^%b\r\n]*+" % one
        if quoted:
            cell = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?:[^"%b\r\n]%b)?+)' % (one, cell)
        self._cell = re.compile(cell)
        self._cells = re.compile(rb"%b(?:%b%b)*+" % (cell, one, cell))

    def end(self, text: bytes, at: int) -> int:
        """Behind the last cell that begins at a place or after it, in one row."""
        found = self._cells.match(text, at)
        return found.end() if found else at

    def begins(self, text: bytes, first: int, at: int) -> bool:
        """Whether a cell begins at a place of the row that begins at ``first``."""
        return at == first or text[at - 1 : at] == self._delimiter

    def cells(self, text: bytes) -> list[bytes]:
        """The cells of a row, quotes included."""
        if not self._quoted or b'"' not in text:
            return text.split(self._delimiter)
        cells, at = [], 0
        while at <= len(text) and (found := self._cell.match(text, at)):
            cells.append(found.group())
            at = found.end() + 1
        return cells

    def value(self, cell: bytes) -> bytes:
        """A cell without the quotes that it stands in."""
        if self._quoted and cell[:1] == b'"':
            return cell[1:-1].replace(b'""', b'"')
        return cell

    def is_stray(self, cell: bytes) -> bool:
        """Whether a cell has a quote, but does not stand in quotes."""
        return self._quoted and cell[:1] != b'"' and b'"' in cell


class Rows:
    """The rows of a stream, one after the other; those without text are blank lines.

    Attributes:
        grammar: of its cells; ``path``: the file's name.
        lines: that were read so far, blank ones included.
    """

    def __init__(self, file: IO[bytes], grammar: Grammar, path: str) -> None:
        self._file, self.grammar, self.path = file, grammar, path
        self._text, self._at, self._ended = b"", 0, False
        self._start = 0  # of the window, in the file
        self.lines = 0

    def __iter__(self) -> Iterator[Raw]:
        """
        Raises:
            ContainerError: it is not known where a row ends.
        """
        while len(self._text) < len(_values.BOM) and not self._ended:
            self._more()
        if self._text.startswith(_values.BOM):
            self._at = len(_values.BOM)
        while self._at < len(self._text) or not self._ended:
            row = self._row()
            if row is None:
                self._more()
            else:
                yield row

    def _more(self) -> None:
        """Read on; the window begins with the row that it ended in."""
        rest = self._text[self._at :]
        self._require_short(len(rest))
        self._start += self._at
        more = self._file.read(max(WINDOW, len(rest)))
        self._text, self._at, self._ended = rest + more, 0, not more

    def _row(self) -> Raw | None:
        """The next row; None where the window does not have all of it."""
        text, first = self._text, self._at
        end = self.grammar.end(text, first)
        if end == len(text):
            if not self._ended:
                return None
            behind = end
        elif text[end : end + 1] == b"\n":
            behind = end + 1
        elif text[end : end + 2] == b"\r\n":
            behind = end + 2
        else:
            self._require_more(first, end)
            return None
        self._require_short(end - first)
        row = Raw(self.lines, self._start + first, text[first:end], ended=behind > end)
        self.lines += text.count(b"\n", first, end) + 1
        self._at = behind
        return row

    def _require_short(self, length: int) -> None:
        if length > LONGEST:
            what = f"a row of more than {LONGEST} bytes begins there"
            raise self.broken(self.lines, what, _QUOTES)

    def _require_more(self, first: int, end: int) -> None:
        """Neither a cell nor the row ends where the cells do: a fault, unless text that was not
        read yet shows otherwise."""
        text = self._text
        line = self.lines + text.count(b"\n", first, end)
        if text[end : end + 1] == b'"' and self.grammar.begins(text, first, end):
            if self._ended:
                raise self.broken(line, "the quote that opens there is never closed", _QUOTES)
        elif end + 1 < len(text) or self._ended:
            if text[end : end + 1] == b"\r":
                what = "a carriage return stands there without a line feed"
                raise self.broken(line, f"{what}, so the end of the row is not known", _RETURN)
            what = "text follows a closed quote there, so the end of the row is not known"
            raise self.broken(line, what, _QUOTES)

    def broken(self, line: int, what: str, remedy: str = _QUOTES) -> errors.ContainerError:
        """The error for a line, from 0, behind which no row can be read."""
        remedy = f"{remedy} --salvage keeps the rows before it."
        return errors.ContainerError(f"{self.path}:{line + 1}: {what}.", remedy)


# How large the values of a table will be as Python objects, before any of them becomes one.
#
# A table names a value once and means it a million times: by a dictionary, by lists that view the
# same items, by runs. What it takes in the file says nothing about what it will take in memory.


_SCALAR = 8


def of(array: Any, size: int) -> Ints:
    """Bytes of each value of an Arrow array. Nothing is decoded to find them.

    Args:
        size: bytes of the file.

    Raises:
        ContainerError: there are more values than such a file has; see ``inflate.require_text``.
    """
    files.require_text(size, files.VALUE * len(array))
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return of(array.storage, size)
    if types.is_dictionary(kind):
        return of(array.dictionary, size).take(np.asarray(array.indices.fill_null(0)))
    if types.is_run_end_encoded(kind):
        ends = np.clip(array.run_ends, array.offset, array.offset + len(array))
        return np.repeat(of(array.values, size), np.diff(ends, prepend=array.offset))
    if types.is_struct(kind):
        fields = [of(array.field(at), size) for at in range(kind.num_fields)]
        return sum(fields, np.full(len(array), _SCALAR, np.int64))
    if types.is_union(kind):  # of each the largest that it may be
        fields = [of(array.field(at), size) for at in range(kind.num_fields)]
        return np.full(len(array), _SCALAR + max(each.max(initial=0) for each in fields))
    if types.is_nested(kind):  # lists of all kinds, and maps
        return _of_lists(array, size)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        lengths = np.frombuffer(array.buffers()[1], np.int32)[array.offset * 4 :: 4]
        return _SCALAR + lengths[: len(array)].astype(np.int64)
    try:
        return _SCALAR + np.asarray(pc.binary_length(array).fill_null(0), np.int64)
    except pa.ArrowNotImplementedError:  # a number or the like
        return np.full(len(array), _SCALAR, np.int64)


def _of_lists(lists: Any, size: int) -> Ints:
    if isinstance(lists, pa.FixedSizeListArray):
        width = lists.type.list_size
        begins = (lists.offset + np.arange(len(lists))) * width
        ends = begins + width
    elif hasattr(lists, "sizes"):  # lists that view their items
        begins = np.asarray(lists.offsets)
        ends = begins + np.asarray(lists.sizes)
    else:
        offsets = np.asarray(lists.offsets)
        begins, ends = offsets[:-1], offsets[1:]
    sums = np.append(0, np.cumsum(of(lists.values, size)))
    weights: Ints = sums.take(ends) - sums.take(begins) + _SCALAR
    return weights
