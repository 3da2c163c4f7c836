"""Ratings of steps: one value, a list of them, the keys and columns that may hold them."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.contract import FormatOptions, Row
from stages.errors import RowError, counted
from stages.format import Format
from stages.formats._asked import Question, meant, require_same
from stages.kinds import STEPS
from stages.rows import judgements
from stages.rows.column_names import peek

_SIGNS = {"+": 1.0, "-": 0.0}
_WORDS: Mapping[str, float | None] = {
    **dict.fromkeys(judgements.GOOD, 1.0),
    **dict.fromkeys(judgements.BAD, 0.0),
    **dict.fromkeys(judgements.NEUTRAL, None),
}
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


def differ(values: Iterable[Any]) -> bool:
    """Whether ratings of one step say different things."""
    read = [float(v) if isinstance(v, (bool, int, float)) else _sign(v) for v in values]
    return any(value != read[0] for value in read[1:])  # of none or one there is nothing to differ


def _sign(value: Any) -> Any:
    return _SIGNS.get(value.strip(), value) if isinstance(value, str) else value


def one_rating(one: Row, names: Iterable[str], where: str, label: Label) -> float | None:
    """The rating that a step gives under any of some keys; None where it is unlabelled.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: it is none, or two keys say different things.
    """
    given = [name for name in names if dict.get(one, name) is not None]
    labels = [label(one[name], f"{where}.{name}") for name in given]
    if differ(one[name] for name in given):
        said = " and ".join(f"{name} is {one[name]!r}" for name in given)
        raise RowError("bad_label", f"{where} has two ratings: {said}")
    return labels[0] if labels else None


def ratings(values: Any, steps: int, column: str, label: Label = rating) -> list[float | None]:
    """One rating per step.

    Args:
        label: a value and its place as a rating.

    Raises:
        RowError: there are more or fewer than steps.
    """
    if not isinstance(values, list):
        raise RowError("bad_column", f"column {column!r} is not a list of labels")
    if len(values) != steps:
        detail = f"{counted(steps, 'step')} and {counted(len(values), 'label')}"
        raise RowError("label_count", detail)
    try:
        return [label(value, column) for value in values]
    except RowError:  # which of them it is, is said where one is refused
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


def signed_ratings(options: FormatOptions) -> dict[Any, float | None]:
    """What ratings of -1, 0 and 1 say; 0 is what ``--neutral`` makes of it."""
    return {1: 1.0, -1: 0.0, 0: _NEUTRAL[options.neutral]}


def is_signed(values: Iterable[Any]) -> bool:
    """Whether ratings count from -1, as some of them show."""
    return any(type(value) in (int, float) and value == -1 for value in values)


class Signed(Format, abstract=True):
    """A format whose variant ``signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).

    Otherwise they are signs, booleans, or numbers from 0 to 1.
    """

    kinds = (STEPS,)
    ways = ("signed", "unsigned")
    _word = "ratings"

    @abstractmethod
    def _shown(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Iterable[Any]:
        """The ratings that rows show."""

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        if is_signed(self._shown(rows, columns)):
            return "signed", f"{self._word} are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def _open(self, row: Row) -> Question | None:
        """What a row leaves open, and the options that settle it."""
        return None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        return next((question for row in rows if (question := self._open(row))), None)

    def _label(self, options: FormatOptions) -> Label:
        """What makes a rating from 0 (bad) to 1 (good) of a value; None is unlabelled.

        It raises RowError where the value is something else.
        """
        if self._way != "signed":
            return functools.partial(_in_words, neutral=options.neutral)

        def label(value: Any, where: str) -> float | None:
            if value is None:
                return None
            if type(value) not in (int, float) or value not in (-1, 0, 1):
                raise RowError("bad_label", f"{where} is {value!r}, not -1, 0 or 1")
            return signed_ratings(options)[value]

        return label


def _any_given(values: Sequence[Any]) -> bool:
    """Whether some rating is given, so not all are null."""
    return any(one is not None for one in values)


def _are_ratings(value: Any) -> bool:
    """Whether a value is a list of ratings, of which one is given."""
    if not isinstance(value, list) or not _any_given(value):
        return False
    return all(map(is_rating, value)) or all(one in (None, -1, 0, 1) for one in value)


def _ratings_said(values: Any) -> Any:
    """What a list of ratings says; the value itself where it is none.

    A list of -1 and 1 says bad and good, whatever the format reads elsewhere.
    """
    if not isinstance(values, list):
        return values
    if -1 in values and all(type(one) in (int, float) and one in (-1, 1) for one in values):
        return [max(0.0, float(one)) for one in values]
    return [rating(value, "") if is_rating(value) else value for value in values]


def rated(row: Row, names: Sequence[str], columns: Mapping[str, str]) -> str:
    """The column of ratings: the first that holds anything, and not only nulls where another one
    holds ratings. Other lists of as many ratings say what this one says.

    Raises:
        AskError: one says something else.
    """
    there = [name for name in meant(names, columns) if peek(row, name) is not None]
    silent = [n for n in there if isinstance(peek(row, n), list) and not _any_given(peek(row, n))]
    if silent and any(_are_ratings(peek(row, name)) for name in there):
        there = [name for name in there if name not in silent]
    column = there[0] if there else names[0]
    require_same_ratings(row, column, names, columns)
    return column


def require_same_ratings(
    row: Row, column: str, names: Sequence[str], columns: Mapping[str, str], before: str = ""
) -> None:
    """Other lists of as many ratings say what the one that is read says.

    Raises:
        AskError: one says something else.
    """
    mine, what = peek(row, column), "the rating of each step"

    def fits(value: Any) -> bool:
        """Whether a value is a list of ratings, of as many steps as the one that is read."""
        return _are_ratings(value) and (not isinstance(mine, list) or len(value) == len(mine))

    require_same(row, column, names, columns, what, said=_ratings_said, fits=fits, before=before)
