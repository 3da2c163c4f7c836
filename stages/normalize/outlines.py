"""Outlines of rows: what a row is without its texts decides what becomes of it.

Most rows of a file differ in their texts alone, or in these and the ratings of their steps. A
format says which columns have texts, turns or ratings that it passes on as they are
(``Format.passes_on``). So one row of an outline is read with a mark in the place of each text and
each rating, as any row is, and what it becomes is what all rows of this outline become, with what
they say where the marks are. A row that has more, or a text that is more than a text, is read by
itself.
"""

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from stages import columns, formats
from stages.chat_template.reasoning import CLOSE, OPEN
from stages.contract import Batch, Record, Row
from stages.files.line_block import dump
from stages.formats import _inside, _turns
from stages.rows import carried, column_names, selection, signals, stop_text, unread
from stages.rows.column_names import EMPTY

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

_MOST = 4096  # outlines that are kept; rows with more of them have little in common
_SPEAKERS, _SAID = ("role", "from"), ("content", "value")  # the keys of a turn
_TEXT, _ONE = "\ue000", "\ue001"  # in a key: a text; a turn that is in no list
_MARKS = re.compile("\ue000(\\d+)\ue001")
_LABELS = "step_labels"
_RATED = 2.0**-20  # times the place of a rating, from 1: its mark, which float32 has exactly
_NUMBERS = frozenset((int, float, bool))
_ENDS = stop_text.LAST | {chr(code) for code in range(0x3001) if chr(code).isspace()}

Key: TypeAlias = tuple[Any, ...]
Texts: TypeAlias = list[str]
Ratings: TypeAlias = list[float]
Fill: TypeAlias = Callable[[Texts], Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class _Names:
    """The columns of a row, by what may be in them where it has an outline.

    Attributes:
        passed: texts and turns that the format passes on.
        empty: nothing, since the format reads more from them.
        meaning: no format reads them, and not every value may be left out.
        others: no format reads them, and every value may be left out.
    """

    passed: tuple[str, ...]
    empty: tuple[str, ...]
    meaning: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Outline:
    """What rows of one outline become.

    Attributes:
        number: of its row among those with marks.
        fills: for each column of texts, what stands in it, given a row's texts.
        notes: of each row.
        left_out: the columns that are in no example.
    """

    number: int
    fills: list[Fill]
    notes: list[str]
    left_out: tuple[str, ...]


def _is_odd(text: str, strips: bool) -> bool:
    """Whether a text may be more than a text: templated, the JSON of turns, one that ends in a stop
    token, one with reasoning that is left open, to be removed, or all that it says."""
    if stop_text.opens(text) or _turns.turns_in(text) is not None or _inside.results(text):
        return True
    if _inside.broken_call(text):
        return True
    if text[-1] in _ENDS and stop_text.ending_stop(text):
        return True
    if strips and (OPEN in text or CLOSE in text):
        return True
    return stop_text.opens_reasoning(text) or stop_text.only_reasons(text)


def _add_turn(turn: Any, key: list[Any], texts: Texts) -> bool:
    """Add a turn to the key and the texts of a row; False where it is more than texts."""
    if type(turn) is not dict:
        return False
    key.append(len(turn))
    for name, said in turn.items():
        key.append(name)
        if said is None:
            key.append(None)
        elif type(said) is not str:
            return False
        elif name in _SPEAKERS or not said or (name in _SAID and said.isspace()):
            key.append(said)
        elif name in _SAID:
            key.append(_TEXT)
            texts.append(said)
        else:
            return False
    return True


def _add(value: Any, key: list[Any], texts: Texts, ratings: Ratings) -> bool:
    """Add a column that is passed on to the key, the texts and the ratings of a row, as
    ``_add_turn``."""
    if type(value) is str:
        if not value or value.isspace():
            key.append(value)
        else:
            key.append(_TEXT)
            texts.append(value)
        return True
    if type(value) is not list:
        key.append(_ONE if value is not None else None)
        return value is None or _add_turn(value, key, texts)
    key.append(len(value))
    kinds = {*map(type, value)}
    if kinds == {str}:
        key.append(_TEXT)
        texts += value
        return "" not in value and True not in map(str.isspace, value)
    if kinds and kinds <= _NUMBERS:
        key.append(_RATED)
        ratings += map(float, value)
        known = min(value) >= 0 and max(value) <= 1 and sum(value) >= 0  # and none is NaN
        return known and len(ratings) == len(value)
    return all(_add_turn(turn, key, texts) for turn in value)


def _alike(texts: Texts) -> tuple[int, ...] | None:
    """For each text the first that is the same; None where two differ in blanks around them."""
    first: dict[str, int] = {}
    same = tuple(first.setdefault(text.strip(), at) for at, text in enumerate(texts))
    return same if all(texts[at] == text for at, text in zip(same, texts, strict=True)) else None


def _blanks(text: str) -> tuple[str, str]:
    """The blanks before a text and behind it."""
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def _mark(text: Any, marks: Mapping[str, str]) -> Any:
    """The mark of a text, between blanks where it is the mark of what stands between them."""
    if not isinstance(text, str) or text in marks:
        return marks.get(text, text)
    bare = text.strip()
    return text.replace(bare, marks[bare], 1) if bare in marks else text


def _marked(value: Any, marks: Mapping[str, str]) -> Any:
    """A value with marks in the place of its texts and its ratings."""
    if isinstance(value, str):
        return _mark(value, marks)
    if isinstance(value, list) and value and {*map(type, value)} <= _NUMBERS:
        return [_RATED * place for place, _ in enumerate(value, 1)]
    if isinstance(value, list):
        return [_marked(one, marks) for one in value]
    if isinstance(value, dict):
        return {k: _mark(v, marks) if k in _SAID else v for k, v in value.items()}
    return value


def _fill(said: Sequence[str | None]) -> Fill:
    """What stands in a column's places, given a row's texts."""
    places = [int(mark[1]) for text in said if (mark := _MARKS.fullmatch(text or ""))]
    if len(places) == len(said):
        return lambda texts: [texts[at] for at in places]
    return lambda texts: [t and _MARKS.sub(lambda mark: texts[int(mark[1])], t) for t in said]


def _with_texts(column: pa.Array, texts: Sequence[str | None]) -> pa.Array:
    """A column as ``carried.texts_in`` takes it that says something else."""
    contents = pa.array(texts, pa.string())
    if not pa.types.is_list(column.type):
        return contents
    offsets, flat = columns.list_parts(column)
    if not pa.types.is_struct(flat.type):
        return columns.make_list(offsets, contents)
    fields = [flat.field(name) for name in flat.type.names]
    fields[flat.type.get_field_index("content")] = contents
    told = pa.StructArray.from_arrays(fields, fields=list(flat.type))
    return columns.make_list(offsets, told)


class Outlines:
    """The outlines of one format's rows.

    Args:
        normalize: what reads the rows with marks.
    """

    def __init__(self, normalize: "Normalize") -> None:
        self._normalize = normalize
        self._kind, self._format = normalize.kind, normalize.format
        self._of: dict[Key, _Outline | None] = {}
        self._marked_rows: list[Batch] = []
        self._names_of = functools.lru_cache(_MOST)(self._names)

    def _names(self, names: Key) -> _Names:
        passed = tuple(name for name in names if name in self._format.passes_on)
        known = {*formats.names_of(self._format)}.difference(passed)
        more = [name for name in names if name not in passed and name not in known]
        meaning = tuple(name for name in more if not signals.is_about(name))
        empty = tuple(name for name in names if name in known)
        return _Names(passed, empty, meaning, tuple(name for name in more if name not in meaning))

    def _read(self, row: Row) -> tuple[Key, Texts, Ratings] | None:
        """What decides what becomes of a row, its texts and its ratings; None where it has more."""
        names = tuple(row)
        key: list[Any] = [names]
        texts: Texts = []
        ratings: Ratings = []
        own = self._names_of(names)
        for name in own.passed:
            if not _add(row[name], key, texts, ratings):
                return None
        for name in (*own.empty, *own.meaning):
            value = row[name]
            empty = value in EMPTY
            key.append(type(value) if empty else ...)
            more = not empty and any(column_names.reasons(name, value, self._kind))
            if more or (not empty and name in own.empty):
                return None
        for name in (*own.meaning, *own.others):
            value = row[name]
            nested = type(value) in (list, dict) and not selection.is_settled(value)
            if nested or signals.are_tools(value):
                return None  # a typed table may have added nulls to calls in any column
        strips = self._normalize.strip_reasoning
        for text in texts:
            tagged = OPEN in text or CLOSE in text
            begins = tagged or stop_text.may_open(text)  # as the JSON of turns does too
            if (begins or text[-1] in _ENDS) and _is_odd(text, strips):
                return None
        bare = [*map(str.strip, texts)]
        if self._kind.marks and any(b.startswith(a) for a, b in itertools.pairwise(sorted(bare))):
            return None  # steps may be prefixes
        if len({*map(len, bare)}) < len(texts) and len({*bare}) < len(texts):
            same = _alike(texts)
            if same is None:
                return None
            key.append(same)
        if self._kind.marks and bare != texts:
            key += map(_blanks, texts)
            texts = bare
        return tuple(key), texts, ratings

    def _outline(self, row: Row, texts: Texts, ratings: Ratings) -> _Outline | None:
        """What all rows with the outline of one become; None where they are read by themselves."""
        names = self._names_of(tuple(row))
        marks = {text: f"\ue000{texts.index(text)}\ue001" for text in texts}
        empty = {name for name in (*names.empty, *names.meaning) if row[name] in EMPTY}
        kept = {name: row[name] for name in row if name in names.passed or name in empty}
        marked = {k: _marked(v, marks) if k in names.passed else v for k, v in kept.items()}
        read = self._normalize.read_marked(marked)
        if read is None:
            return None
        made, notes, unread = read
        said = [carried.texts_in(made.column(name))[1].to_pylist() for name in self._kind.texts]
        in_texts = sum(text.count(_TEXT) for some in said for text in some if text)
        if dump(made.to_pylist()).count(_TEXT) > in_texts:
            return None
        if self._kind.marks and made.column(_LABELS)[0].as_py() != _marked(ratings, {}):
            return None
        self._marked_rows.append(made)
        left = (*unread, *(name for name in row if name not in kept))
        decided = self._normalize.decided
        left = tuple(name for name in left if name not in decided)
        number = sum(some.num_rows for some in self._marked_rows) - 1
        return _Outline(number, [*map(_fill, said)], notes, left)

    def _outline_of(self, row: Row) -> tuple[_Outline, Texts, Ratings] | None:
        """A row's outline, its texts and its ratings; None where the row is read by itself, as the
        first of each outline is."""
        read = self._read(row)
        if read is None:
            return None
        key, texts, ratings = read
        if key not in self._of:
            if len(self._of) < _MOST:
                self._of[key] = _UNREAD
            return None
        outline = self._of[key]
        if outline is _UNREAD:
            outline = self._of[key] = self._outline(row, texts, ratings)
        return None if outline is None else (outline, texts, ratings)

    def batch(self, records: Sequence[Record]) -> tuple[list[int], Batch] | None:
        """Those of some records that have an outline, by index, and what they become."""
        rows = enumerate(self._normalize.rows(records))
        each = ((number, row, self._outline_of(row)) for number, row in rows if row is not None)
        found = [(number, row, outline) for number, row, outline in each if outline is not None]
        if not found:
            return None
        numbers = [number for number, _, _ in found]
        for _, row, (one, _, _) in found:
            if one.left_out:
                self._count(row, one.left_out)
        lines = [records[number].line for number in numbers]
        made = self._columns([one for _, _, one in found])
        odd = {at: one.notes for at, (_, _, (one, _, _)) in enumerate(found) if one.notes}
        made["note"] = carried.column(self._kind.texts, columns=made, odd_rows=odd, lines=lines)
        return numbers, carried.batch_of(lines, [-1] * len(lines), refused={}, own_columns=made)

    def _columns(self, found: Sequence[tuple[_Outline, Texts, Ratings]]) -> dict[str, Any]:
        marked = self._marked_rows
        if len(marked) > 1:
            together = pa.Table.from_batches(marked).combine_chunks().to_batches()
            marked = self._marked_rows = together
        taken = marked[0].take(pa.array([outline.number for outline, _, _ in found]))
        made = dict(zip(taken.schema.names, taken.columns, strict=True))
        for at, name in enumerate(self._kind.texts):
            said = [one.fills[at](texts) for one, texts, _ in found]
            made[name] = _with_texts(made[name], [*itertools.chain.from_iterable(said)])
        if self._kind.marks:
            offsets, own = columns.list_parts(made[_LABELS])
            rated = [*itertools.chain.from_iterable(ratings for *_, ratings in found)]
            made[_LABELS] = columns.make_list(offsets, pa.array(rated, own.type))
        return made

    def _count(self, row: Row, names: Sequence[str]) -> None:
        """Count what is left out of a row."""
        tally, named = self._normalize.tally, self._normalize.options.columns.values()
        paths = (*selection.parts_of(row, named), *self._normalize.carried.paths)
        for name in names:
            for path, values in unread.by_path(selection.rest(name, row[name], paths)).items():
                tally.add(path, *values)


_UNREAD = _Outline(-1, [], [], ())  # of the first row of an outline
