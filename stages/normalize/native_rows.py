"""Plain rows straight from the bytes of their lines, by the native module.

It takes only lines of which it is sure: flat objects with just the columns of the block's first
row, as strict as ``stages.files.strict_json``. Every other line is left to that parser, and then to
``stages.normalize.plain``, which would find the same columns in the lines that are taken here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from stages import native
from stages.columns import Ints
from stages.contract import Row
from stages.errors import RowError
from stages.files import strict_json
from stages.files.line_block import LineBlock
from stages.format import Format
from stages.kinds import Kind
from stages.normalize import plain
from stages.normalize.plain import Plain, Reading
from stages.normalize.turns import SPELLED, asked_and_answered, dialogues, exchanges

_TEXT, _TURNS, _OTHER = range(3)
_MOST_COLUMNS = 32  # that the module takes
_ROLES = tuple(role.encode() for role in SPELLED)
_NUMBERS = tuple(SPELLED.values())


@dataclass(frozen=True, slots=True)
class _Read:
    """What the module made of a block.

    Attributes:
        lines: places of the lines that it took; ``sizes``: texts of each.
        roles: of the turns, where it read turns.
        others: the values of the columns that are not read, row after row.
    """

    lines: Ints
    sizes: Ints
    texts: pa.StringArray
    roles: npt.NDArray[np.int8]
    others: list[object]


def _first_row(block: LineBlock) -> Row | None:
    """The row that shows which columns to expect; None where it is none that the module reads."""
    line = block.raw(0)
    if len(line) > block.longest:
        return None
    try:
        return strict_json.parse(line)
    except RowError:
        return None


def _is_plainly_spelled(name: str) -> bool:
    return '"' not in name and "\\" not in name and name.isprintable()


def _keys(row: Row, how: Reading) -> tuple[str, str]:
    """The keys of the turns of a row."""
    turns = row[how.columns[0]]
    named = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "role" in turns[0]
    return plain.SAID[0] if named else plain.SAID[1]


def _read(module: native.Native, block: LineBlock, row: Row, how: Reading) -> _Read:
    of_turns = len(how.columns) == 1
    names = (*how.columns, *how.unread)
    kinds = [_TURNS if of_turns else _TEXT] * len(how.columns) + [_OTHER] * len(how.unread)
    size, lines = len(block.content), len(block.starts) - 1
    # A turn is spelled with more than eight bytes; a row has as many texts as it has columns.
    room = size // 8 + 1 if of_turns else lines * len(how.columns)
    taken, text = np.zeros(lines, np.uint8), np.empty(size, np.uint8)
    ends, roles = np.zeros(room + 1, np.int32), np.empty(room if of_turns else 0, np.int8)
    sizes, others = np.empty(lines, np.int64), np.empty(size if how.unread else 0, np.uint8)
    rows, texts, used, other = module.read_rows(
        block.content,
        block.starts,
        tuple(name.encode() for name in names),
        tuple(kinds),
        tuple(key.encode() for key in _keys(row, how)),
        _ROLES,
        _NUMBERS,
        block.longest,
        taken,
        text,
        ends[1:],
        roles,
        sizes,
        others,
    )
    column = pa.StringArray.from_buffers(
        texts, pa.py_buffer(ends[: texts + 1]), pa.py_buffer(text[:used])
    )
    block.take(taken.view(bool))
    values = orjson.loads(b"[" + others[: max(other - 1, 0)].tobytes() + b"]")
    return _Read(np.flatnonzero(taken), sizes[:rows], column, roles[:texts], values)


def _plain(read: _Read, block: LineBlock, how: Reading, kind: Kind) -> Plain:
    if len(how.columns) == 1:
        turns, fine = dialogues(read.roles, read.texts, read.sizes)
    elif len(how.columns) == 2:
        turns, fine = asked_and_answered(read.texts, None)
    else:
        each = np.arange(0, len(read.texts), 3)
        asked, answers, more = (read.texts.take(pa.array(each + at)) for at in range(3))
        turns, fine = asked_and_answered(exchanges(asked, more, answers), asked)
    width = len(how.unread)
    unread = {name: read.others[at::width] for at, name in enumerate(how.unread)}
    for name, values in unread.items():
        fine &= np.array(plain.may_be_left_out(how, name, values, kind), bool)
    kept = {name: list(itertools.compress(values, fine)) for name, values in unread.items()}
    rows = np.searchsorted(block.places, read.lines[fine])
    return Plain(rows.tolist(), turns.rows(fine), kept)


def find(block: LineBlock, format_: Format, kind: Kind) -> Iterator[Plain]:
    """The plain rows of a block of lines, if the native module is there; none otherwise."""
    module = native.module()
    if module is None or not block.untouched or b"\r" in block.content:
        return
    row = _first_row(block)
    how = None if row is None else plain.reading_of(tuple(row), format_, kind)
    if row is None or how is None or len(row) > _MOST_COLUMNS:
        return
    if all(map(_is_plainly_spelled, row)):
        read = _read(module, block, row, how)
        if len(read.lines):
            yield _plain(read, block, how, kind)
