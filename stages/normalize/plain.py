"""A fast path for rows that say no more than who says what: they become columns without an object.

Most rows of SFT data are two texts, or a list of turns with a role and a text each, which alternate
and end in an answer. Such rows are found here many at a time. Every other row of the batch is read
by its format, one by one, which would give these the same columns.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.chat_template import loss_weights
from stages.chat_template.reasoning import OPEN
from stages.columns import Ints, make_list, offsets_of
from stages.contract import Row
from stages.conversations import stop_text, templated
from stages.conversations.unfinished import opens_reasoning
from stages.format import Format
from stages.kinds import Kind
from stages.rows import column_names, null_fields

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

_ROLES = ("system", "user", "assistant")
_SYSTEM, _USER, _ASSISTANT = range(3)
SYSTEM, USER, ASSISTANT = _SYSTEM, _USER, _ASSISTANT
SPELLED = {
    "system": _SYSTEM,
    "user": _USER,
    "human": _USER,
    "assistant": _ASSISTANT,
    "gpt": _ASSISTANT,
}
FOLLOWS = np.zeros((3, 3), bool)  # [a turn, the turn behind it]
FOLLOWS[_SYSTEM, _USER] = FOLLOWS[_USER, _ASSISTANT] = FOLLOWS[_ASSISTANT, _USER] = True
_FEW = 16  # rows that columns would not save time for, where others of the batch differ


class Made(Protocol):
    """Rows that were read many at a time."""

    def columns(self, normalize: Normalize) -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        ...

    def odd(self, normalize: Normalize) -> Mapping[int, list[str]]:
        """The notes of some rows, by index."""
        ...


Found: TypeAlias = Iterator[tuple[list[int], Made]]  # some rows by index, and what is made of them


@dataclass(frozen=True, slots=True)
class Turns:
    """Conversations, flat.

    Attributes:
        roles: int8, of all turns, one row after another: numbers as in ``_ROLES``.
        texts: of these turns.
        offsets: where each row's turns start.
    """

    roles: npt.NDArray[np.int8]
    texts: list[str]
    offsets: Ints

    def columns(self, normalize: Normalize) -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        trained = self.roles == _ASSISTANT
        if normalize.train_on == "last":
            trained[:] = False
            trained[self.offsets[1:] - 1] = True
        count = len(self.offsets) - 1
        return {
            "messages": self.messages(trained),
            "turn_weights": loss_weights.lists({}, count),
            "tools": pa.nulls(count, pa.string()),
        }

    def odd(self, normalize: Normalize) -> Mapping[int, list[str]]:
        """Turns that alternate have no notes of their own."""
        return {}

    def messages(self, trained: npt.NDArray[np.bool_]) -> pa.ListArray:
        """A column of these turns, given which of them are trained."""
        arrays = [
            pa.array(_ROLES).take(pa.array(self.roles)),
            pa.array(self.texts, pa.string()),
            pa.nulls(len(self.texts), pa.string()),
            pa.array(trained),
        ]
        turns = pa.StructArray.from_arrays(arrays, fields=list(columns.MESSAGES.value_type))
        return make_list(self.offsets, turns)


@dataclass(frozen=True, slots=True)
class Plain:
    """Some rows of a batch.

    Attributes:
        rows: their indices.
        unread: the columns of these rows that are in no example.
    """

    rows: list[int]
    made: Made
    unread: tuple[str, ...]


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


ReadingOf: TypeAlias = Callable[[Sequence[str], Format, Kind], Reading | None]


def reading_of(names: Sequence[str], format_: Format, kind: Kind) -> Reading | None:
    """How rows of a question and its answer, or of one conversation, are read."""
    for wanted in (format_.exchange, (format_.dialogue,) if format_.dialogue else None):
        there = [[name for name in some if name in names] for some in wanted or ()]
        if wanted and all(len(some) == 1 for some in there):
            more = [name for name in format_.question_goes_on if name in names]
            if wanted is format_.exchange and len(more) > 1:
                return None
            taken = tuple(some[0] for some in there)
            taken += tuple(more) if wanted is format_.exchange else ()
            unread = tuple(name for name in names if name not in taken)
            meaning = tuple(name for name in unread if column_names.may_mean_more(name, kind))
            read = _exchanges if len(taken) > 1 else _dialogues
            return Reading(taken, unread, meaning, functools.partial(_runs, read))
    return None


def _ordinary(answers: Sequence[str]) -> bool:
    """Whether no answer ends in the text of a stop token or opens reasoning without an end."""
    # Most texts are seen to be ordinary by one character; only the others are looked into.
    stopped = [text for text in answers if text.rstrip()[-1] in stop_text.LAST]
    return not any(map(stop_text.ending_stop, stopped)) and not any(
        opens_reasoning(text) for text in answers if OPEN in text
    )


def _exchanges(rows: Sequence[Row], names: tuple[str, ...]) -> Turns | None:
    """Questions and answers; None where one row is anything else."""
    prompts, replies, *more = ([row[name] for row in rows] for name in names)
    # Checked with map and set, without a Python loop over the rows.
    if {*map(type, prompts), *map(type, replies)} != {str} or not all(map(str.strip, replies)):
        return None
    if more and {*map(type, more[0])} != {str}:
        return None
    if more:
        if any(templated.read(text) for text in prompts if text[:1] in templated.FIRST):
            return None
        prompts = [f"{a}\n\n{b}" if b else a for a, b in zip(prompts, more[0], strict=True)]
    if any(templated.read(text) for text in prompts if text[:1] in templated.FIRST):
        return None
    if not _ordinary(replies):
        return None
    texts = [""] * (2 * len(rows))
    texts[::2], texts[1::2] = prompts, replies
    roles = np.tile(np.array([_USER, _ASSISTANT], np.int8), len(rows))
    return Turns(roles, texts, 2 * np.arange(len(rows) + 1))


def _dialogues(rows: Sequence[Row], names: tuple[str, ...]) -> Turns | None:
    """Conversations; None where one row is anything else."""
    lists = [row[names[0]] for row in rows]
    if {*map(type, lists)} != {list} or not all(lists):
        return None
    turns = list(itertools.chain.from_iterable(lists))
    if {*map(type, turns)} != {dict} or {*map(len, turns)} != {2}:
        return None
    who, said = ("role", "content") if "role" in turns[0] else ("from", "value")
    try:
        speakers, texts = [turn[who] for turn in turns], [turn[said] for turn in turns]
        roles = np.fromiter(map(SPELLED.__getitem__, speakers), np.int8, len(turns))
    except (KeyError, TypeError):
        return None
    if {*map(type, texts)} != {str} or not all(map(str.strip, texts)):
        return None
    offsets = offsets_of(np.fromiter(map(len, lists), np.int64, len(lists)))
    firsts, lasts = offsets[:-1], offsets[1:] - 1
    follows = FOLLOWS[roles[:-1], roles[1:]]
    follows[lasts[:-1]] = True  # what follows there is another conversation
    whole = (roles[firsts] != _ASSISTANT).all() and (roles[lasts] == _ASSISTANT).all()
    if not whole or not follows.all():
        return None
    answers = [text for text, role in zip(texts, roles.tolist(), strict=True) if role == _ASSISTANT]
    return Turns(roles, texts, offsets) if _ordinary(answers) else None


def _runs(
    read: Callable[[Sequence[Row], tuple[str, ...]], Turns | None],
    rows: Sequence[Row],
    names: tuple[str, ...],
    first: int = 0,
) -> Found:
    """What is made of rows: of all at once, else of halves, as long as these are not few."""
    made = read(rows, names)
    if made is not None:
        yield list(range(first, first + len(rows))), made
    elif len(rows) > _FEW:
        half = len(rows) // 2
        yield from _runs(read, rows[:half], names, first)
        yield from _runs(read, rows[half:], names, first + half)


def find(
    rows: Sequence[Row | None], format_: Format, kind: Kind, read: ReadingOf = reading_of
) -> Iterator[Plain]:
    """The plain rows of a batch, in groups.

    Args:
        rows: None for those that could not be parsed.
        read: how rows of the kind are read.
    """
    by_columns: dict[tuple[str, ...], list[int]] = {}
    for number, row in enumerate(rows):
        if row is not None:
            by_columns.setdefault(tuple(row), []).append(number)
    for names, numbers in by_columns.items():
        reading = read(names, format_, kind)
        if reading is not None and (len(numbers) > _FEW or len(numbers) == len(rows)):
            yield from _of_one_kind(rows, numbers, reading=reading, kind=kind)


def _of_one_kind(
    rows: Sequence[Row | None], numbers: list[int], reading: Reading, kind: Kind
) -> Iterator[Plain]:
    own = [(number, row) for number in numbers if (row := rows[number]) is not None]
    for name in reading.absent:
        own = [(n, row) for n, row in own if row[name] is None]
    for name in reading.meaning:
        own = [(n, row) for n, row in own if not column_names.means_more(name, row[name], kind)]
    for name in reading.unread:  # a typed table may have added nulls to calls in any column
        own = [
            (n, row)
            for n, row in own
            if type(row[name]) not in (list, dict) or null_fields.is_settled(row[name])
        ]

    for which, made in reading.read([row for _, row in own], reading.columns) if own else ():
        yield Plain([own[at][0] for at in which], made, reading.unread)
