"""Columns of a row, or keys of a step, that could each be meant: they say the same, or are asked
about.

The question offers to leave columns out, not to name one with ``--map``: what a file's rows show,
such as whether numbers count from 0, is then read from the column that stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.contract import Row
from stages.errors import RowError
from stages.formats import _steps
from stages.formats._asked import Question, meant, open_question
from stages.rows.unread import ignore
from stages.rows.watched import peek


def which(names: Sequence[str], what: str, before: str = "") -> Question:
    """The question that names of one meaning leave, and the options that keep one of them each.

    Args:
        what: each could be: ``rating of each step``.
        before: their place in the row: ``steps[].``.
    """
    ways = [" ".join(ignore(f"{before}{one}") for one in names if one != kept) for kept in names]
    said = f"{' and '.join(names)} could each be {what}, and they differ"
    return said, f"Say which to leave out with {' or '.join(ways)}"


def require_same(
    row: Row,
    column: str,
    names: Sequence[str],
    columns: Mapping[str, str],
    *,
    what: str,
    fits: Callable[[Any], bool],
    said: Callable[[Any], Any],
    before: str = "",
) -> None:
    """Other columns say what the one that is read says, and so count as read.

    Args:
        names: of all columns with its meaning.
        columns: those that ``--map`` named: nothing but these is meant.
        fits: whether a value can have the meaning.
        said: what a value says, however it is written.
        before: the place of the columns in the row: ``solutions[].``.

    Raises:
        AskError: one says something else.
    """
    others = [n for n in meant(names, columns) if n != column and n in row and fits(peek(row, n))]
    mine = said(peek(row, column))
    if any(said(peek(row, name)) != mine for name in others):
        sources = [columns.get(name, name) for name in (column, *others)]
        raise open_question(*which(sources, what, before))
    for name in others:
        _ = row[name]


def _any_given(values: Sequence[Any]) -> bool:
    """Whether some rating is given, so not all are null."""
    return any(one is not None for one in values)


def _are_ratings(value: Any) -> bool:
    """Whether a value is a list of ratings, of which one is given."""
    if not isinstance(value, list) or not _any_given(value):
        return False
    return all(map(_steps.is_rating, value)) or all(one in (None, -1, 0, 1) for one in value)


def _ratings_said(values: Any) -> Any:
    """What a list of ratings says; the value itself where it is none.

    A list of -1 and 1 says bad and good, whatever the format reads elsewhere.
    """
    if not isinstance(values, list):
        return values
    if -1 in values and all(type(one) in (int, float) and one in (-1, 1) for one in values):
        return [max(0.0, float(one)) for one in values]
    read = []
    for value in values:
        try:
            read.append(_steps.rating(value, ""))
        except RowError:
            read.append(value)
    return read


def rated(row: Row, names: Sequence[str], columns: Mapping[str, str]) -> str | None:
    """The column of ratings: the first that holds anything, and not only nulls
    where another one holds ratings."""
    there = [name for name in meant(names, columns) if peek(row, name) is not None]
    silent = [n for n in there if isinstance(peek(row, n), list) and not _any_given(peek(row, n))]
    if any(_are_ratings(peek(row, name)) for name in there):
        there = [name for name in there if name not in silent]
    return next(iter(there), None)


def require_same_ratings(
    row: Row, column: str, names: Sequence[str], columns: Mapping[str, str], before: str = ""
) -> None:
    """Other lists of as many ratings say what the one that is read says.

    Raises:
        AskError: one says something else.
    """
    mine = peek(row, column)

    def rates_each(value: Any) -> bool:
        """Whether a value is a list of ratings, of as many steps as the one that is read."""
        return _are_ratings(value) and (not isinstance(mine, list) or len(value) == len(mine))

    require_same(
        row,
        column,
        names,
        columns,
        what="the rating of each step",
        fits=rates_each,
        said=_ratings_said,
        before=before,
    )
