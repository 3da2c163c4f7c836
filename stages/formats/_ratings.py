"""Ratings of steps: one value, a list of them, the keys and columns that may hold them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.contract import FormatOptions, Row
from stages.errors import RowError, UndecidedError, counted
from stages.formats._fields import NOTHING, Field, meant
from stages.formats._rated_steps import Steps
from stages.rows import judgements
from stages.rows.column_names import peek

_SIGNS = {"+": 1.0, "-": 0.0}
_WORDS: Mapping[str, float | None] = {
    **dict.fromkeys(judgements.GOOD, 1.0),
    **dict.fromkeys(judgements.BAD, 0.0),
    **dict.fromkeys(judgements.NEUTRAL, None),
}
_STRAY = 20  # times as many zeros: so rare is no rating of its own
_NEUTRAL: Mapping[str, float | None] = {"null": None, "good": 1.0, "bad": 0.0}
Label = Callable[[Any, str], float | None]  # a value and its place as a rating


def rating(value: Any, where: str) -> float | None:
    """A label as a rating from 0 (bad) to 1 (good); null, and a word for neither, is unlabelled.

    Raises:
        RowError: it is something else.
    """
    if value is None or value is True or value is False:
        return None if value is None else float(value)
    if isinstance(value, str) and (word := value.strip().casefold()) in _WORDS:
        return _WORDS[word]
    number = judgements.spelled(value)
    if number is not None and 0 <= number <= 1:
        return number
    known = "+ or -, true or false, a word such as correct, incorrect or neutral, or 0 to 1"
    raise RowError("bad_label", f"{where} is {value!r}; a rating is {known}")


def _in_words(value: Any, where: str, neutral: str) -> float | None:
    """A rating; a word for neither good nor bad is what ``--neutral`` makes of it."""
    made = rating(value, where)
    return _NEUTRAL[neutral] if made is None and value is not None else made


def is_rating(value: Any) -> bool:
    """Whether a value can be a rating."""
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


def one_rating(one: Row, of: Field, where: str, label: Label, before: str) -> float | None:
    """The rating that an object gives under a key of a field; None where it is unlabelled.

    Args:
        label: a value and its place as a rating.
        before: its place in the row, as options take it.

    Raises:
        RowError: it is none, or two keys say different things.
    """
    key = of.of(one, NOTHING, before)
    return None if key is None else label(one[key], f"{where}.{key}")


def listed(row: Row, column: str) -> list[Any]:
    """A list of ratings, whatever they are.

    Raises:
        RowError: there is none.
    """
    values = row.get(column)
    if values is None:
        raise RowError("nothing_labelled", "no step has a rating")
    if not isinstance(values, list):
        raise RowError("bad_column", f"column {column!r} is not a list of labels")
    return values


def ratings(
    values: Sequence[Any], steps: int, column: str, label: Label = rating
) -> list[float | None]:
    """One rating per step.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: there are more or fewer than steps.
    """
    if len(values) != steps:
        detail = f"{counted(steps, 'step')} and {counted(len(values), 'label')}"
        raise RowError("label_count", detail)
    return [label(value, f"{column}[{i}]") for i, value in enumerate(values)]


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
            sign = label[at : at + 1]
            known = sign in _SIGNS  # as nearly all are
            signs.append(_SIGNS[sign] if known else rating(sign, f"the label of step {number}"))
            at += 1
    if at != len(label):
        raise RowError("misaligned", f"label goes on after character {at}, where input ends")
    return signs


def signed(options: FormatOptions) -> Label:
    """What makes a rating of -1, 0 or 1; 0 is what ``--neutral`` makes of it."""
    said = {1: 1.0, -1: 0.0, 0: _NEUTRAL[options.neutral]}

    def label(value: Any, where: str) -> float | None:
        if value is None:
            return None
        if type(value) not in (int, float) or value not in said:
            raise RowError("bad_label", f"{where} is {value!r}, not -1, 0 or 1")
        return said[value]

    return label


class Signed(Steps, abstract=True):
    """A format whose variant ``signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).

    Otherwise they are signs, booleans, or numbers from 0 to 1.
    """

    ways: tuple[str, ...] = ("signed", "unsigned")
    _word = "ratings"

    @abstractmethod
    def _shown(self, row: Row, columns: Mapping[str, str]) -> Iterable[Any]:
        """The ratings that a row shows."""

    def _counts(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Counter[float]:
        """How often some rows show -1, 0 and 1."""
        shown = (one for row in rows for one in self._shown(row, columns))
        return Counter(one for one in shown if type(one) in (int, float) and one in (-1, 0, 1))

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
        if self._way.startswith("signed"):
            return signed(options)
        return functools.partial(_in_words, neutral=options.neutral)


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


def rated(
    row: Row, names: Sequence[str], columns: Mapping[str, str] = NOTHING, before: str = ""
) -> str:
    """The column of ratings: the first that rates anything, else the first that holds anything.
    Other lists of as many ratings say what this one says.

    Args:
        before: the place of the columns in the row: ``solutions[].``.

    Raises:
        AskError: one says something else.
    """
    there = [name for name in meant(names, columns) if peek(row, name) is not None]
    if not there[1:]:  # as nearly always
        return there[0] if there else names[0]
    lists = Field("rating of each step", there, are_ratings, _all_said)
    first = lists.first(row)
    if first is None:
        return Field("", there).first(row) or there[0]
    count = len(peek(row, first))
    alike = lists.that(lambda value: are_ratings(value) and len(value) == count)
    return alike.same(row, (first,), columns, before)[0]
