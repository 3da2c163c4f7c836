"""Rows that are recognised to be refused by their name: no example of the task is in them."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.contract import Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _messages, _turns
from stages.formats._fields import TABLE_OF_ROWS
from stages.rows import column_names
from stages.rows.column_names import peek
from stages.rows.shapes import mostly
from stages.rows.signals import is_prose
from stages.rows.unread import mapped

_SAID = TABLE_OF_ROWS["unusable"]


def _columns(name: str) -> Mapping[str, tuple[str, ...]]:
    return {what: (*names.split(),) for what, names in _SAID[name]["columns"].items()}


class Unusable(Format, abstract=True):
    """A format that none of the tasks can use; ``columns.toml`` says what its rows are.

    Args:
        evidence: why a row looks like it, in words; None when it does not.
    """

    usable = False

    def __init__(self, name: str, evidence: Callable[[Row], str | None]) -> None:
        said = _SAID[name]
        self.name, self.kinds, self.__doc__ = name, tuple(said["kinds"]), said["says"]
        self.columns, self._evidence = _columns(name), evidence
        self._what, self._instead = said["what"], said["instead"]

    def matches(self, row: Row) -> str | None:
        return self._evidence(row)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        said = next(reason for row in rows if (reason := self._evidence(row)))
        checked = (name for name in self.columns.get("checked", ()) if name in rows[0])
        told = next((n for n in checked if all(is_prose(peek(row, n)) for row in rows)), None)
        if told is not None and mostly(self._has_longer(row, told) for row in rows):
            told = None  # what is to be trained stands there
        own = "" if told is None else f". To train what is checked, add {mapped('answer', told)}"
        return f"{said}: {self._what}", self._instead + own

    def _has_longer(self, row: Row, told: str) -> bool:
        """Whether a column that this format does not know has more to say than a text."""
        known = {*itertools.chain(*self.columns.values())}
        texts = [peek(row, name) for name in row if name not in known]
        least = len(peek(row, told) or "")
        return any(isinstance(one, str) and is_prose(one) and len(one) > least for one in texts)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        raise RowError(self.name, self._what)


def _is_batch_line(row: Row) -> str | None:
    held = next((n for n in ("body", "response") if isinstance(peek(row, n), dict)), None)
    return f"custom_id and {held}" if held and "custom_id" in row else None


ONE, _NUMBERS = _columns("regression_reward").values()
_SECOND = ("chosen", "rejected", "responses", "answers", "completions", "candidates", "label")


def _has_one_number(row: Row) -> str | None:
    if any(name in row for name in _SECOND):
        return None
    answers = [name for name in ONE if isinstance(peek(row, name), (str, list))]
    number = next((name for name in _NUMBERS if type(peek(row, name)) in (int, float)), None)
    return f"one {answers[0]} with one {number}" if len(answers) == 1 and number else None


def _has_segments(row: Row) -> str | None:
    said = peek(row, "segments")
    known = all(_turns.is_turns(said, key) for key in ("text", "label"))
    return "segments with text and label" if known else None


_ASKED, _CHECKED = _columns("prompts_alone").values()
_TURNS, _TEXTS = _ASKED[:2], (_ASKED[0], *_ASKED[2:])
# Any of these may hold an answer; then the row is for another format.
_ANSWERS = frozenset(
    "answers responses solutions completions chosen rejected candidates messagecontent steps "
    "labels replies children instances text inputids".split()
)
_HELD = {*_TURNS, *_CHECKED, "extra_info", "metadata", "meta", "tools", "tags", "info"}


def _ends_unanswered(value: Any) -> bool:
    if not _turns.are_turns(value):
        return False
    return all(_messages.role_of(turn) in ("system", "user") for turn in value)


def _has_no_answer(row: Row) -> str | None:
    said = [name for name, value in row.items() if value not in (None, "", [], {})]
    checked = next((name for name in _CHECKED if name in said), None)
    turns = next((name for name in _TURNS if _ends_unanswered(peek(row, name))), None)
    asked = turns or next((name for name in _TEXTS if isinstance(peek(row, name), str)), None)
    if asked is None or (not checked and not turns and asked != "prompt"):
        return None
    names = [column_names.plain(name) for name in said]
    if any(column_names.is_a(name, "answer") for name in said):
        return None
    if any(name in _ANSWERS or "response" in name or "output" in name for name in names):
        return None
    if any(isinstance(peek(row, name), (list, dict)) for name in said if name not in _HELD):
        return None
    return f"{asked} and {checked}" if checked else f"{asked} without an answer"


def unanswered(rows: Sequence[Row], columns: Iterable[str]) -> tuple[str, str] | None:
    """What rows are of which every one has turns and no turn of an assistant; as ``doubt`` says it.

    Args:
        columns: those that may hold the turns.
    """
    for name in columns:
        if rows and all(_ends_unanswered(peek(row, name)) for row in rows):
            said = _SAID["prompts_alone"]
            calls = (one for one in rows[0] if _turns.are_calls(peek(rows[0], one)))
            each = (f"{mapped('prompt', name)} {mapped('completion', one)}" for one in calls)
            own = [f". To train the calls, add {ways}" for ways in each]
            return f"{name} without an answer: {said['what']}", said["instead"] + "".join(own[:1])
    return None


TABLE = (
    Unusable("batch_lines", _is_batch_line),
    Unusable("prompts_alone", _has_no_answer),
    Unusable("regression_reward", _has_one_number),
    Unusable("segments", _has_segments),
)
