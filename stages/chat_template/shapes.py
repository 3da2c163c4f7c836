"""Rendering of whole columns: rows of one shape become an outline and their own texts.

Nearly all rows of a file have one of a few shapes (see ``compile``), and a shape's program needs no
Python per row: the texts of a turn are one column for all rows of the shape. Rows that have more
than roles and texts, or that a program does not fit, are left to be rendered one by one; both ways
give the same segments.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.chat_template.compile import Program, Unit
from stages.chat_template.segments import Guard
from stages.columns import Bools, Ints, list_parts, make_list, make_segments, offsets_of
from stages.contract import BARE, Batch
from stages.errors import RowError

_ROLES = 32  # roles that have a number; rows with others are rendered one by one
# What Python's str.strip takes off, which templates use; Arrow's own idea of blanks differs.
_BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
_TRIMS = {"s": pc.utf8_trim, "l": pc.utf8_ltrim, "r": pc.utf8_rtrim}
_ASKS: Mapping[str, Callable[..., pa.Array]] = {
    "holds": pc.match_substring,
    "begins": pc.starts_with,
    "ends": pc.ends_with,
}


def trimmed(texts: pa.Array, how: str) -> pa.Array:
    """Texts after a slot's strips; see ``placeholders.SLOT``."""
    for step in how.split(";")[:-1]:
        chars = bytes.fromhex(step[1:]).decode() or _BLANKS
        texts = _TRIMS[step[0]](texts, characters=chars)
    return texts


def asked(guard: Guard, texts: pa.Array) -> Bools:
    """For which texts the answer to a guard's question is yes, so that its program is wrong."""
    answers = _ASKS[guard.ask](trimmed(texts, guard.how), pattern=guard.part)
    yes: Bools = answers.to_numpy(zero_copy_only=False)
    return yes


class Shape(NamedTuple):
    """Rows of a batch that differ in their texts only.

    Attributes:
        rows: their indices.
        first: of each row, the index of the turn that the program calls 0; -1 before the first
            turn where a system text was put in front.
    """

    program: Program
    rows: Ints
    first: Ints


class Conversations:
    """A column of conversations as flat arrays.

    Args:
        marker: finds texts of whose rows the template must not be used.
    """

    def __init__(self, batch: Batch, name: str, marker: re.Pattern[str] | None) -> None:
        self.name = name
        self.offsets, self._turns = list_parts(batch.column(name))
        self.texts: pa.StringArray = self._turns.field(1)
        self._trained = self._turns.field(3).to_numpy(zero_copy_only=False).astype(np.uint8)
        self._marker = marker
        self._tools = batch.column("tools").is_valid().to_numpy(zero_copy_only=False)

    def _per_row(self, turns: Bools) -> Bools:
        return columns.count_per_row(self.offsets, turns) > 0

    def plain(self) -> Bools:
        """Rows that are roles and texts alone."""
        roles, fields = self._turns.field(0), self._turns.field(2)
        rows: Bools = (np.diff(self.offsets) > 0) & ~self._tools
        rows &= ~self._per_row(pc.equal(roles, BARE).to_numpy(zero_copy_only=False))
        if fields.null_count < len(fields):
            rows &= ~self._per_row(fields.is_valid().to_numpy(zero_copy_only=False))
        if self._marker is not None and len(self.texts):
            marked = pc.match_substring_regex(self.texts, self._marker.pattern)
            rows &= ~self._per_row(pc.fill_null(marked, False).to_numpy(zero_copy_only=False))
        return rows

    def without_system(self) -> Bools:
        """Rows that do not begin with a system turn."""
        opens = np.append(pc.equal(self._turns.field(0), "system").to_numpy(False), True)
        return ~opens[self.offsets[:-1]]

    def keys(self, names: dict[str, int]) -> tuple[Ints, list[bytes]]:
        """What each row's shape depends on, but for tools and fields.

        Args:
            names: the numbers of roles; new ones get the next.

        Returns:
            Which key each row has, -1 for those with too many roles; and the keys.
        """
        rows = len(self.offsets) - 1
        roles = self._turns.field(0).dictionary_encode()
        known = [names.setdefault(role, len(names)) for role in roles.dictionary.to_pylist()]
        if max(known, default=0) >= _ROLES:
            return np.full(rows, -1), []
        number = np.array([*known, 0], np.uint8)[roles.indices.to_numpy()]
        lengths = pc.fill_null(pc.binary_length(self.texts), 0).to_numpy()
        # A missing text and an empty one are two shapes.
        said = np.where(lengths > 0, 2, self.texts.is_valid().to_numpy(zero_copy_only=False))
        codes = (number * 8 + said.astype(np.uint8) * 2 + self._trained).astype(np.uint8)
        return _numbered(codes, self.offsets)

    def _text(self, shape: Shape, slot: int) -> pa.StringArray:
        return self.texts.take(pa.array(shape.first + slot))

    def fitting(self, shape: Shape) -> Shape:
        """The shape with the rows for which the template prints what its program prints."""
        fits = np.ones(len(shape.rows), bool)
        for guard in shape.program.guards:
            fits &= ~asked(guard, pc.fill_null(self._text(shape, guard.slot), ""))
        return Shape(shape.program, shape.rows[fits], shape.first[fits])

    def own_texts(self, shape: Shape) -> list[pa.StringArray]:
        """For each segment with a row's own text, that text of every row of a shape."""
        own = partial(self._text, shape)
        return [printed(unit, own) for unit in shape.program.units if unit.slots]


def printed(unit: Unit, text_of: Callable[[int], pa.StringArray]) -> pa.StringArray:
    """A segment of many rows: the texts of its slots, within what the template prints."""
    parts: list[pa.Array | str] = [unit.literals[0]]
    for (slot, how), literal in zip(unit.slots, unit.literals[1:], strict=True):
        parts += [trimmed(text_of(slot), how), literal]
    if len(parts) == 3 and not parts[0] and not parts[2]:
        return parts[1]
    return pc.binary_join_element_wise(*parts, "")


def _numbered(codes: npt.NDArray[np.uint8], offsets: Ints) -> tuple[Ints, list[bytes]]:
    """The different runs of some bytes, and which of them each run is."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(codes)]
    runs = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers).dictionary_encode()
    number: Ints = runs.indices.to_numpy().astype(np.int64)
    return number, runs.dictionary.to_pylist()


def outline_columns(
    conversations: Conversations, shapes: list[Shape], count: int
) -> tuple[pa.DictionaryArray, pa.ListArray]:
    """The columns ``outline`` (null for rows of no shape) and ``texts`` of a batch.

    Args:
        shapes: no row is in two.
        count: rows of the batch.
    """
    which = np.full(count, -1, np.int32)
    sizes = np.zeros(count, np.int64)
    arrays: list[pa.StringArray] = []
    for number, shape in enumerate(shapes):
        own = conversations.own_texts(shape)
        which[shape.rows], sizes[shape.rows] = number, len(own)
        arrays += own
    spelled = pa.array([shape.program.outline for shape in shapes], pa.string())
    outline = pa.DictionaryArray.from_arrays(pa.array(which, mask=which < 0), spelled)
    offsets = offsets_of(sizes)
    # The texts of a shape lie turn after turn; each row takes its own, one of every turn.
    place, base = np.empty(int(offsets[-1]), np.int64), 0
    for shape in shapes:
        rows, each = len(shape.rows), int(sizes[shape.rows[0]]) if len(shape.rows) else 0
        turn = np.arange(each)
        at = base + np.arange(rows)[:, None] + turn * rows
        place[offsets[shape.rows][:, None] + turn] = at
        base += rows * each
    joined = pa.concat_arrays(arrays) if arrays else pa.array([], pa.string())
    return outline, make_list(offsets, joined.take(pa.array(place)))


# The column of segments that rendering adds to a batch, built row by row.


def refuse_all(batch: Batch, errors: dict[int, RowError]) -> Batch:
    """Fill the reject columns with what each row raised."""
    for code in sorted({error.code for error in errors.values()}):
        details = {row: error.detail for row, error in errors.items() if error.code == code}
        rows = np.zeros(batch.num_rows, bool)
        rows[list(details)] = True
        batch = columns.refuse(batch, rows, code, list(details.values()))
    return batch


class SegmentsColumn:
    """A segments column while rows are added to it, by their index; rows without any are empty."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[list[str], bytes, str]] = {}
        self._errors: dict[int, RowError] = {}

    def add(self, row: int, texts: list[str], kinds: bytes, path: str) -> None:
        """Add the segments of a row; rows come in order."""
        self._rows[row] = (texts, kinds, path)

    def refuse(self, row: int, error: RowError) -> None:
        """Leave a row empty, and refuse it."""
        self._errors[row] = error

    def into(self, batch: Batch, name: str, otherwise: str | None = None) -> Batch:
        """The batch with the column, and the path that each row took in ``rendered``.

        Args:
            otherwise: the path of rows without segments that are not refused.
        """
        lengths = np.zeros(batch.num_rows, np.int64)
        paths: list[str | None] = [otherwise] * batch.num_rows
        for row, (own, _, path) in self._rows.items():
            lengths[row], paths[row] = len(own), path
        for row in self._errors:
            paths[row] = None
        texts = [text for own, _, _ in self._rows.values() for text in own]
        flat = make_segments(texts, b"".join(own for _, own, _ in self._rows.values()))
        batch = columns.put(batch, name, make_list(offsets_of(lengths), flat))
        batch = columns.put(batch, "rendered", pa.array(paths, pa.string()))
        return refuse_all(batch, self._errors)
