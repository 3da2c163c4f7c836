"""What a row leaves open: columns of one meaning that say different things.

Reading a row raises ``AskError`` where it leaves something open, so the build refuses that row with
the options that settle it. The same reading of a file's sample asks about the file before anything
is built, so that both ask the same.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.contract import FormatOptions, Row
from stages.errors import AskError, RowError
from stages.format import Format
from stages.rows.column_names import EMPTY, peek
from stages.rows.unread import ignore

Holds = Callable[[Row, str], bool]
FEW = 0.01  # of the rows: no more of them stop a file
Question = tuple[str, str]  # what is open, and the options that settle it


def says(row: Row, name: str) -> bool:
    """Whether a column says anything."""
    return peek(row, name) not in EMPTY


def open_question(what: str, how: str, code: str = "bad_column") -> AskError:
    """The error of a row that leaves something open; its detail names the options too."""
    return AskError(code, f"{what}; {how[:1].lower()}{how[1:]}", how)


def question(error: AskError) -> Question:
    """What an error asks, without the options that its detail names too."""
    end = open_question("", error.remedy).detail
    return error.detail.removesuffix(end), error.remedy


def _asks(row: Row, ways: Sequence[Format], options: FormatOptions) -> AskError | None:
    """What a row asks when it is read, in the first way in which it says anything."""
    for way in ways:
        try:
            way.read(row, options)
        except AskError as error:
            return error
        except (RowError, AttributeError, LookupError, TypeError, ValueError):
            continue  # refused by name when it is built
        return None
    return None


class Asking(Format, abstract=True):
    """A format that asks about a file what it refuses its rows for."""

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        """What some rows leave open, unless they are so few that they are left to be refused.

        The first question of the first such row: its answer may lead to another one.
        """
        options = FormatOptions(columns=columns, already_templated=True)
        ways = [self, *self.variants.values()]
        errors = (_asks(row, ways, options) for row in rows)
        asked = [error for error in errors if error is not None and error.code != "tie"]
        return question(asked[0]) if len(asked) > FEW * len(rows) else None


def required(column: str | None, detail: str, code: str = "bad_column") -> str:
    """A column that a row must have.

    Raises:
        RowError: it has none; ``detail`` says so.
    """
    if column is None:
        raise RowError(code, detail)
    return column


def meant(names: Sequence[str], columns: Mapping[str, str]) -> Sequence[str]:
    """The columns of one meaning that ``--map`` named; all of them where it named none."""
    return [name for name in names if name in columns] or names


def both_of(row: Row, pairs: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The first of several pairs of columns that a row has both of."""
    return next((names for names in pairs if all(peek(row, n) is not None for n in names)), None)


def one_of(
    row: Row, names: Sequence[str], columns: Mapping[str, str], *, what: str, holds: Holds = says
) -> str | None:
    """The one column of several with one meaning; others that say the same count as read.

    Raises:
        AskError: two say different things, and ``--map`` names neither.
    """
    held = [name for name in meant(names, columns) if holds(row, name)]
    if len(held) > 1:
        odd = [name for name in held if peek(row, name) != peek(row, held[0])]
        if odd:
            both = [held[0], *odd]
            ways = " or ".join(f"--map {name}={name}" for name in both)
            text = f"{' and '.join(both)} could each be the {what}"
            raise open_question(text, f"Say which with {ways}")
        for name in held[1:]:
            _ = row[name]  # read: the first one says it
    return held[0] if held else None


def two_of(
    row: Row, pairs: Sequence[tuple[str, str]], columns: Mapping[str, str], *, holds: Holds = says
) -> tuple[str, str] | None:
    """The two columns with a row's two answers, of several pairs of names.

    Raises:
        AskError: a column of another pair holds another answer, and ``--map`` names neither.
    """
    named = [names for names in pairs if all(name in columns for name in names)]
    named = named or [names for names in pairs if any(name in columns for name in names)]
    able = named or pairs
    held = [names for names in able if all(holds(row, name) for name in names)]
    if not held:
        return None
    first = held[0]
    for names in able:
        for name, mine in zip(names, first, strict=True):
            if name in first or not holds(row, name):
                continue
            if peek(row, name) == peek(row, mine):
                _ = row[name]  # read: the other column says it
                continue
            there = [n for n in dict.fromkeys(itertools.chain(*able)) if holds(row, n)]
            ways = [" ".join(ignore(n) for n in there if n not in kept) for kept in held]
            what = f"{mine} and {name} could each be the answer"
            raise open_question(what, f"Say which with {' or '.join(ways)}")
    return first


def keeping_one(names: Sequence[str], before: str = "") -> str:
    """The options that leave out all but one of some columns, for each of them."""
    ways = [" ".join(ignore(f"{before}{one}") for one in names if one != kept) for kept in names]
    return " or ".join(ways)


def which(names: Sequence[str], what: str, before: str = "") -> Question:
    """The question that names of one meaning leave, and the options that keep one of them each.

    Args:
        what: each could be: ``rating of each step``.
        before: their place in the row: ``steps[].``.
    """
    said = f"{' and '.join(names)} could each be {what}, and they differ"
    return said, f"Say which to leave out with {keeping_one(names, before)}"


def require_same(
    row: Row,
    column: str,
    names: Sequence[str],
    columns: Mapping[str, str],
    what: str,
    *,
    said: Callable[[Any], Any] = lambda value: value,
    fits: Callable[[Any], bool] = lambda value: True,
    before: str = "",
) -> None:
    """Other columns say what the one that is read says, and so count as read.

    Args:
        names: of all columns with its meaning.
        columns: those that ``--map`` named: nothing but these is meant.
        what: they could each be, for a sentence.
        said: what a value says, however it is written.
        fits: whether a value can have the meaning.
        before: the place of the columns in the row: ``solutions[].``.

    Raises:
        AskError: one says something else.
    """
    others = [n for n in meant(names, columns) if n != column and n in row and fits(peek(row, n))]
    if not others:
        return
    mine = said(peek(row, column))
    if any(said(peek(row, name)) != mine for name in others):
        sources = [columns.get(name, name) for name in (column, *others)]
        raise open_question(*which(sources, what, before))
    for name in others:
        _ = row[name]
