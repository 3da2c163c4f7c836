"""A fast path for rows that say no more than who says what: they become columns without an object.

Most rows of SFT data are two texts, or a list of turns with a role and a text each, which alternate
and end in an answer. Such rows are found here many at a time. Every other row of the batch is read
by its format, one by one, which would give these the same columns.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from stages.contract import Row
from stages.errors import RowError
from stages.format import Format
from stages.kinds import Kind
from stages.normalize.turns import (
    SPELLED,
    Bools,
    Made,
    Turns,
    asked_and_answered,
    dialogues,
    exchanges,
)
from stages.rows import column_names, selection

SAID = (("role", "content"), ("from", "value"))  # the keys of a turn
_FEW = 16  # rows that columns would not save time for, where others of the batch differ


Found: TypeAlias = Iterator[tuple[list[int], Made]]  # some rows by index, and what is made of them


@dataclass(frozen=True, slots=True)
class Plain:
    """Some rows of a batch.

    Attributes:
        rows: their indices.
        unread: the columns of these rows that are in no example, with their values.
    """

    rows: list[int]
    made: Made
    unread: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows with the same columns are read.

    Attributes:
        columns: that are read, for instance a question, its answer and perhaps the rest of the
            question; or a column of turns alone.
        unread: the other columns; ``meaning``: those of them that must not be left out of an
            example, unless they are empty.
        read: given rows and ``columns``, finds those that are plain.
        absent: columns that the format would read; only rows in which they are null are plain.
    """

    columns: tuple[str, ...]
    unread: tuple[str, ...]
    meaning: tuple[str, ...]
    read: Callable[[Sequence[Row], tuple[str, ...]], Found]
    absent: tuple[str, ...] = ()


Take: TypeAlias = Callable[..., bool]  # adds the values of a row to what is made of several
ReadingOf: TypeAlias = Callable[[Sequence[str], Format, Kind], Reading | None]


def _each(
    rows: Sequence[Row], names: tuple[str, ...], made_of: Callable[[], Made], take: Take
) -> Found:
    """What is made of rows one by one; those that ``take`` does not take, or refuses, are left."""
    made, taken = made_of(), []
    for number, row in enumerate(rows):
        try:
            if take(made, *(row[name] for name in names)):
                taken.append(number)
        except RowError:
            continue  # it is read, and refused, by its format
    if taken:
        yield taken, made


def reading_beside(
    taken: tuple[str, ...],
    names: Sequence[str],
    format_: Format,
    kind: Kind,
    made_of: Callable[[], Made],
    take: Take,
) -> Reading:
    """How rows are taken one by one whose format reads some columns.

    Others that the format knows must be null.
    """
    known = {*itertools.chain.from_iterable(format_.columns.values())}
    absent = tuple(name for name in names if name not in taken and name in known)
    read = functools.partial(_each, made_of=made_of, take=take)
    return _reading(taken, names, kind, read, absent)


def _reading(
    taken: tuple[str, ...],
    names: Sequence[str],
    kind: Kind,
    read: Callable[[Sequence[Row], tuple[str, ...]], Found],
    absent: tuple[str, ...] = (),
) -> Reading:
    unread = tuple(name for name in names if name not in taken and name not in absent)
    meaning = tuple(name for name in unread if column_names.may_mean_more(name, kind))
    return Reading(taken, unread, meaning, read, absent)


def only_one(wanted: Iterable[Sequence[str]], names: Sequence[str]) -> tuple[str, ...] | None:
    """The column of each of several meanings; None where one has none, or several."""
    there = [[name for name in some if name in names] for some in wanted]
    return tuple(some[0] for some in there) if all(len(some) == 1 for some in there) else None


def reading_of(names: Sequence[str], format_: Format, kind: Kind) -> Reading | None:
    """How rows of a question and its answer, or of one conversation, are read."""
    taken = only_one(format_.exchange, names) if format_.exchange else None
    if taken is not None:
        more = [name for name in format_.question_goes_on if name in names]
        read = functools.partial(_runs, _exchanges)
        return _reading((*taken, *more), names, kind, read) if len(more) < 2 else None
    taken = only_one([format_.dialogue], names)
    read = functools.partial(_runs, _dialogues)
    return _reading(taken, names, kind, read) if taken else None


def _exchanges(rows: Sequence[Row], names: tuple[str, ...]) -> tuple[Turns, Bools] | None:
    """Questions and answers, and which of them are plain; None where one row is anything else."""
    prompts, replies, *more = (list(map(itemgetter(name), rows)) for name in names)
    # Checked with map and set, without a Python loop over the rows.
    if {*map(type, itertools.chain(prompts, replies, *more))} != {str}:
        return None
    if more:
        asked, others, answers = (pa.array(one, pa.string()) for one in (prompts, *more, replies))
        return asked_and_answered(exchanges(asked, others, answers), asked)
    texts = [""] * (2 * len(rows))
    texts[::2], texts[1::2] = prompts, replies
    return asked_and_answered(pa.array(texts, pa.string()), None)


def _dialogues(rows: Sequence[Row], names: tuple[str, ...]) -> tuple[Turns, Bools] | None:
    """Conversations, and which of them are plain; None where one row is anything else."""
    lists = [row[names[0]] for row in rows]
    if {*map(type, lists)} != {list} or not all(lists):
        return None
    turns = list(itertools.chain.from_iterable(lists))
    if {*map(type, turns)} != {dict} or {*map(len, turns)} != {2}:
        return None
    who, said = SAID[0] if "role" in turns[0] else SAID[1]
    try:
        speakers, texts = map(itemgetter(who), turns), list(map(itemgetter(said), turns))
        roles = np.fromiter(map(SPELLED.__getitem__, speakers), np.int8, len(turns))
    except (KeyError, TypeError):
        return None
    if {*map(type, texts)} != {str}:
        return None
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    return dialogues(roles, pa.array(texts, pa.string()), sizes)


def _runs(
    read: Callable[[Sequence[Row], tuple[str, ...]], tuple[Turns, Bools] | None],
    rows: Sequence[Row],
    names: tuple[str, ...],
    first: int = 0,
) -> Found:
    """What is made of rows: of all at once, else of halves, as long as these are not few."""
    found = read(rows, names)
    if found is not None:
        turns, plain = found
        yield (first + np.flatnonzero(plain)).tolist(), turns.rows(plain)
    elif len(rows) > _FEW:
        half = len(rows) // 2
        yield from _runs(read, rows[:half], names, first)
        yield from _runs(read, rows[half:], names, first + half)


def _by_columns(rows: Sequence[Row | None]) -> dict[tuple[str, ...], list[int]]:
    """The rows with the same columns."""
    read = [row for row in rows if row is not None]
    if read and len(read) == len(rows):
        # No row has a key twice: so if all keys together are those of the first row again and
        # again, as often as there are rows, then each row has just these.
        first = list(read[0])
        if list(itertools.chain.from_iterable(read)) == first * len(read):
            return {tuple(first): list(range(len(read)))}
    by_columns: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(rows):
        if row is not None:
            by_columns.setdefault(tuple(row), []).append(number)
    return by_columns


def find(
    rows: Sequence[Row | None], format_: Format, kind: Kind, read: ReadingOf = reading_of
) -> Iterator[Plain]:
    """The plain rows of a batch, in groups.

    Args:
        rows: None for those that could not be parsed.
        read: how rows of the kind are read.
    """
    for names, numbers in _by_columns(rows).items():
        how = read(names, format_, kind)
        if how is not None and (len(numbers) > _FEW or len(numbers) == len(rows)):
            yield from _of_one_kind(rows, numbers, how=how, kind=kind)


def _may_be_left_out(how: Reading, name: str, values: Sequence[Any], kind: Kind) -> list[bool]:
    """Which rows of a column that is not read are still the same examples without it."""
    fine = [True] * len(values)
    if name in how.meaning:
        # An empty list says no more than nothing, but a format refuses it where a text belongs.
        bad: tuple[Any, ...] = ({}, []) if "system" in name.lower() else ({},)
        fine = [
            not column_names.means_more(name, value, kind) and value not in bad for value in values
        ]
    if not {list, dict}.isdisjoint(map(type, values)):
        # A typed table may have added nulls to calls in any column.
        settled = [type(v) not in (list, dict) or selection.is_settled(v) for v in values]
        fine = [one and two for one, two in zip(fine, settled, strict=True)]
    return fine


def _of_one_kind(
    rows: Sequence[Row | None], numbers: list[int], how: Reading, kind: Kind
) -> Iterator[Plain]:
    own = [row for number in numbers if (row := rows[number]) is not None]
    for name in (*how.absent, *how.unread):
        values = [row[name] for row in own]
        fine = (
            [value is None for value in values]
            if name in how.absent
            else _may_be_left_out(how, name, values, kind)
        )
        if not all(fine):
            numbers = list(itertools.compress(numbers, fine))
            own = list(itertools.compress(own, fine))
    for which, made in how.read(own, how.columns) if own else ():
        unread = {name: [own[at][name] for at in which] for name in how.unread}
        yield Plain([numbers[at] for at in which], made, unread)
