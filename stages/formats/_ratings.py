"""Ratings of steps: one value, a list of them, the keys and columns that may hold them."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.contract import FormatOptions, Row
from stages.errors import RowError, UndecidedError, counted
from stages.formats._fields import NOTHING, Field, meant, tried
from stages.formats._rated_steps import Steps
from stages.rows import judgements
from stages.rows.column_names import peek

_SIGNS = {"+": 1.0, "-": 0.0}
_SIGNED = {1: 1.0, 0: None, -1: 0.0}
_WORDS: Mapping[str, float | None] = {
    **dict.fromkeys(judgements.GOOD, 1.0),
    **dict.fromkeys(judgements.BAD, 0.0),
    **dict.fromkeys(judgements.NEUTRAL, None),
}
_STRAY = 20  # times as many zeros: so rare is no rating of its own
_NEUTRAL: Mapping[str, float | None] = {"null": None, "good": 1.0, "bad": 0.0}
Label = Callable[[Any, str], float | None]  # a value and its place as a rating


def rating(value: Any, where: str, neutral: str = "null", signed: bool = False) -> float | None:
    """A label as a rating from 0 (bad) to 1 (good); null, and what judges do not agree on, is
    unlabelled.

    Args:
        neutral: what ``--neutral`` makes of a word for neither, and of the 0 of signed ratings.
        signed: ratings are -1, 0 and 1.

    Raises:
        RowError: it is something else.
    """
    if value in (None, judgements.TIE):
        return None
    if not signed:
        made = _unsigned(value, where)
    elif type(value) in (int, float) and value in _SIGNED:
        made = _SIGNED[value]
    else:
        raise RowError("bad_label", f"{where} is {value!r}, not -1, 0 or 1")
    return _NEUTRAL[neutral] if made is None else made


def _unsigned(value: Any, where: str) -> float | None:
    """A sign, a boolean, a word or a number from 0 to 1 as a rating; None for neither."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (word := value.strip().casefold()) in _WORDS:
        return _WORDS[word]
    number = judgements.spelled(value)
    if number is not None and 0 <= number <= 1:
        return number
    known = "+ or -, true or false, a word such as correct, incorrect or neutral, or 0 to 1"
    raise RowError("bad_label", f"{where} is {value!r}; a rating is {known}")


def is_rating(value: Any) -> bool:
    """Whether a value can be a rating."""
    if value == judgements.TIE:
        return False
    try:
        rating(value, "")
    except RowError:
        return False
    return True


def is_given(value: Any) -> bool:
    """Whether a value can be the rating of a step, on any scale."""
    return value is not None and (judgements.is_marked(value) or is_rating(value))


def said(value: Any) -> Any:
    """What a rating says, however it is written."""
    sign = _SIGNS.get(value.strip(), value) if isinstance(value, str) else value
    return float(sign) if isinstance(sign, (bool, int, float)) else sign


def one_rating(one: Row, where: str, of: Field, label: Label, before: str) -> float | None:
    """The rating that an object gives under a key of a field; None where it is unlabelled.

    Args:
        label: a value and its place as a rating.
        before: its place in the row, as options take it.

    Raises:
        RowError: it is none, or two keys say different things.
    """
    key = of.of(one, NOTHING, before)
    return None if key is None else label(one[key], f"{where}.{key}")


def ratings(
    values: Sequence[Any], steps: int, column: str, label: Label = rating
) -> list[float | None]:
    """One rating per step.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: there are more or fewer than steps.
    """
    made = [label(value, f"{column}[{i}]") for i, value in enumerate(values)]
    if len(values) != steps:
        detail = f"{counted(steps, 'step')} and {counted(len(values), 'label')}"
        raise RowError("label_count", detail)
    return made


def aligned(pieces: list[str], label: str) -> list[float | None]:
    """The ratings of a text that has a sign wherever another one, cut into pieces, has a tag.

    Raises:
        RowError: ``misaligned``: they differ elsewhere; ``bad_label``: a sign is something else.
    """
    signs: list[float | None] = []
    at = 0
    for number, piece in enumerate(pieces, 1):
        if not label.startswith(piece, at):
            detail = f"input and label differ before tag {number}, near character {at}"
            raise RowError("misaligned", detail)
        at += len(piece)
        if number < len(pieces):
            signs.append(rating(label[at : at + 1], f"the label of step {number}"))
            at += 1
    if at != len(label):
        raise RowError("misaligned", f"label goes on after character {at}, where input ends")
    return signs


class Signed(Steps, abstract=True):
    """A format whose variant ``signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).

    Otherwise they are signs, booleans, or numbers from 0 to 1.
    """

    ways: tuple[str, ...] = ("signed", "unsigned")
    _word = "ratings"
    _seen: list[Any] | None = None  # the ratings of rows that are read to look at these alone

    def _counts(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Counter[float]:
        """How often some rows show -1, 0 and 1."""
        looking, seen = copy.copy(self), list[Any]()
        looking._seen = seen
        for row in rows:
            tried(looking, row, FormatOptions(columns=columns, already_templated=True))
        return Counter(one for one in seen if type(one) in (int, float) and one in _SIGNED)

    def _see(self, value: Any, where: str) -> None:
        if self._seen is not None:
            self._seen.append(value)

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        counts = self._counts(rows, options.columns)
        if not counts[-1]:
            return "", ""
        if counts[0] > _STRAY * counts[-1]:
            what = f"{self._word} are 0 in {counts[0]:,} places and -1 in {counts[-1]:,}"
            ways = self.ways if counts[1] else self.ways[::-1]
            raise UndecidedError(f"{what}: 0 is neutral, or bad and -1 a mistake", ways)
        return "signed", f"{self._word} are -1, 0 and 1; 0 follows --neutral"

    def is_believable(self, rows: Sequence[Row], options: FormatOptions) -> bool:
        # Where nothing is rated good, nothing says what a 0 is.
        told = self._way.startswith("signed") and options.neutral != "null"
        return not told or bool(self._counts(rows, options.columns)[1])

    def _label(self, options: FormatOptions) -> Label:
        """What makes a rating from 0 (bad) to 1 (good) of a value; None is unlabelled.

        It raises RowError where the value is something else.
        """
        if self._seen is not None:
            return self._see
        signed = self._way.startswith("signed")
        return functools.partial(rating, neutral=options.neutral, signed=signed)


def are_ratings(value: Any) -> bool:
    """Whether a value is a list of ratings, of which one is given."""
    if not isinstance(value, list) or all(one is None for one in value):
        return False
    return all(map(is_rating, value)) or all(one in (None, -1, 0, 1) for one in value)


def _all_said(values: Any) -> Any:
    """What a list of ratings says.

    A list of -1 and 1 says bad and good, whatever the format reads elsewhere.
    """
    if -1 in values and all(type(one) in (int, float) and one in (-1, 1) for one in values):
        return [max(0.0, float(one)) for one in values]
    return [*map(said, values)]


def listed(
    row: Row, names: Sequence[str], columns: Mapping[str, str] = NOTHING, before: str = ""
) -> tuple[str, list[Any]]:
    """The column of a list of ratings, and these, whatever they are.

    Args:
        before: the place of the columns in the row: ``solutions[].``.

    Raises:
        AskError: another column says something else.
        RowError: there is none, or it is no list.
    """
    there = [name for name in meant(names, columns) if peek(row, name) is not None]
    column = there[0] if there else names[0]
    if there[1:]:  # the first that rates anything, else the first that holds anything
        lists = Field("rating of each step", there, are_ratings, _all_said)
        column = lists.first(row) or Field("", there).first(row) or column
        if are_ratings(value := peek(row, column)):  # others of as many say what this one says
            alike = lists.that(lambda one: are_ratings(one) and len(one) == len(value))
            alike.same(row, (column,), columns, before)
    values = row.get(column)
    if values is None:
        raise RowError("nothing_labelled", "no step has a rating")
    if not isinstance(values, list):
        raise RowError("bad_column", f"column {column!r} is not a list of labels")
    return column, values
