"""Steps in a list, and which of them are wrong: the first, or a list of their numbers."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from stages.contract import Example, FormatOptions, Row, StepChain
from stages.errors import RowError, UndecidedError, counted
from stages.formats import _rated_steps, _turns
from stages.formats._fields import NOTHING, Field, columns_of, is_any, is_list, required
from stages.rows import judgements
from stages.rows.column_names import peek
from stages.rows.shapes import mostly
from stages.rows.unread import differs_from, mapped

_ZERO, _ONE = "0-based", "1-based"
_WHOLE = "-whole"
_STEP_1 = re.compile(r"\W*step\W*1\b", re.IGNORECASE)  # who numbers steps so counts them so


def _settle(
    named: Sequence[tuple[Sequence[int], int]],
    what: str,
    none_said: bool = True,
    likelier: tuple[str, str] = (_ZERO, _ONE),
) -> tuple[str, str]:
    """The variant that rows show, and why.

    Args:
        named: by row, the numbers of its wrong steps, and how many steps it has.
        none_said: rows without a wrong step say so otherwise than by a 0: without such rows, a 0
            may be a file's way to say it.
        what: says these numbers, as words with a verb in the plural: ``the lists name``.
        likelier: the way that is offered first.

    Raises:
        UndecidedError: no row has a step 0 or one with the number of the last, or both occur, or
            a 0 may say that no step is wrong.
    """
    zero = sum(0 in numbers for numbers, _ in named)
    last = sum(steps in numbers for numbers, steps in named)
    if zero and not none_said and not last:
        # Most solutions are not wrong from the first step on.
        likelier = (_ONE, _ZERO) if 2 * zero >= len(named) else (_ZERO, _ONE)
        seen = f"a 0 in {counted(zero, 'row')}, which may be the first step or say that no step is "
        none = "wrong (no row has -1 or null), so they may count from 0 or from 1"
        raise UndecidedError(f"{what} {seen}{none}", likelier)
    if zero and not last:
        return _ZERO, f"it counts from 0, as step 0 is listed in {counted(zero, 'row')}"
    if last and not (zero and none_said):
        listed = f"the last step is listed by its number in {counted(last, 'row')}"
        none = f", and a 0 in {counted(zero, 'row')} says that no step is wrong" if zero else ""
        return _ONE, f"it counts from 1, as {listed}{none}"
    seen = "both a step 0 and a step past the end" if zero else "neither a step 0 nor a last step"
    raise UndecidedError(f"{what} {seen}, so they may count from 0 or from 1", likelier)


class _Numbered(_rated_steps.Steps, abstract=True):
    """A format that names wrong steps by their numbers."""

    ways: tuple[str, ...] = (_ZERO, _ONE)

    @abstractmethod
    def _wrong(self, row: Row, steps: int, columns: Mapping[str, str]) -> list[int]:
        """The places of the wrong ones of so many steps, from 0 and in order; raises RowError where
        one is no step."""

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        # Steps before the first wrong one are good, and others that are not wrong unlabelled, or
        # good in a list of all that are wrong.
        steps = _rated_steps.texts(row, _rated_steps.LISTED.needed(row, options.columns))
        wrong = self._wrong(row, len(steps), options.columns)
        labels: list[float | None] = [1.0] * len(steps)
        if wrong and not self._way.endswith(_WHOLE):
            labels[wrong[0] :] = [None] * (len(steps) - wrong[0])
        for one in wrong:
            labels[one] = 0.0
        return [StepChain(_rated_steps.problem(row, options), steps, labels)]


def _steps(row: Row, columns: Mapping[str, str]) -> list[str]:
    """The steps of a row, which may have none."""
    return peek(row, _rated_steps.LISTED.first(row, columns) or "") or []


_INDICES = columns_of("processbench")["first error"]
_OWN, *_NAMED = _INDICES
_ENOUGH = 4  # rows that show no -1 and no step beyond the second before that is suspicious


def _whole(value: Any) -> Any:
    """A number that is whole, however it is written, -1 for null; any other value as it is."""
    number = -1.0 if value is None else judgements.spelled(value)
    return value if number is None or number % 1 else int(number)


def _said(value: Any) -> tuple[bool, Any]:
    """What a value says, of which a boolean is no number."""
    return isinstance(value, bool), _whole(value)


_INDEX = Field("index of the first wrong step", _INDICES, is_any, _said, empty=True)
_SURE = _INDEX.that(lambda value: value is None or type(value) is int)


def _other(row: Row, columns: Mapping[str, str]) -> str | None:
    """The column of an index that may count from 1: ``label`` does not say the same."""
    held = _INDEX.held(row, columns)
    there = [name for name in held if name != _OWN]
    name = next((one for one in there if peek(row, one) is not None), next(iter(there), None))
    own = name and _OWN in held
    return None if own and _said(peek(row, _OWN)) == _said(peek(row, name or "")) else name


class _ProcessBench(_Numbered):
    """``problem``, ``steps`` and the index of the first wrong step; -1 or null for none.

    ``label`` counts from 0, as ProcessBench does. A column with another name (``first_error_step``)
    may count from 0 or from 1. Whether a step after the first error is right is unknown, so those
    steps stay unlabelled.
    """

    name = "processbench"
    first_error = True
    _needs = (_rated_steps.LISTED, _SURE)
    _words = "{} and the index of the first error in {}"

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        others = [(name, row) for row in rows if (name := _other(row, options.columns))]
        said = [_whole(row[name]) for name, row in others]
        if all(value == -1 for value in said):  # none, or the same from 0 and 1
            return "", ""
        steps = [_steps(row, options.columns) for _, row in others]
        numbers = ([value] if type(value) is int else [] for value in said)
        named = [*zip(numbers, map(len, steps), strict=True)]
        own = mostly(bool(_STEP_1.match(str(some[0]))) for some in steps if some)
        likelier = (_ONE, _ZERO) if own else (_ZERO, _ONE)
        return _settle(named, f"the values of {others[0][0]} name", -1 in said, likelier)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        if question := super().doubt(rows, columns):
            return question
        for name in _INDICES:
            given = [row[name] for row in rows if name in row]
            if None in given and -1 in [_whole(one) for one in given if one is not None]:
                own = judgements.bare(columns.get(name, name))
                what = f"{own} is -1 in some rows and null in others, which may know of no error"
                instead = "where null says that no step is wrong, add --format processbench"
                return what, f"Leave such rows out with {differs_from(own, None)}, or {instead}"
        if any(name in columns for name in _INDICES) or len(rows) < _ENOUGH:
            return None
        seen = {row.get(_OWN, -1) for row in rows if row.keys().isdisjoint(_NAMED)}
        longest = max(len(_steps(row, columns)) for row in rows)
        if seen != {0, 1} or longest < 3:
            return None
        what = "label is 0 or 1 in every row: the index of the first wrong step, or a verdict"
        return f"{what} on the whole solution", "If it is the index, add --format processbench"

    def _wrong(self, row: Row, steps: int, columns: Mapping[str, str]) -> list[int]:
        column = _INDEX.of(row, columns)
        column = required(column, "nothing says which step is the first wrong one")
        number = _whole(row[column])
        none = (-1, 0) if column != _OWN and self._way == _ONE else (-1,)
        if type(number) is int and number in none:
            return []
        if column == _OWN and self._way == _ONE:
            other = mapped(_NAMED[0], columns.get(_OWN, _OWN))
            raise RowError("bad_label", f"{_OWN} counts from 0; to read it from 1, add {other}")
        if column != _OWN and not self._way:
            ways = " or ".join(f"--format {self.name}/{way}" for way in self.ways)
            detail = f"{column} {number!r}, and no sampled row shows whether it counts from 0 or 1"
            raise RowError("bad_label", f"{detail}; say which with {ways}")
        base = int(self._way == _ONE)
        if type(number) is not int or not 0 <= number - base < steps:
            detail = f"{column} {number!r} is not a step of {steps}"
            raise RowError("bad_label", f"{detail}{' counted from 1' * base}, nor -1")
        return [number - base]


_LISTS = columns_of("error_list")["wrong steps"]
_LISTED = _LISTS[:-2]  # the others may hold ratings


def _is_list(value: Any, steps: int) -> bool:
    """Whether a value can be a list of distinct step numbers, in order."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        return False
    return value == sorted(set(value)) and (not value or (value[0] >= 0 and value[-1] <= steps))


def _field(steps: int) -> Field:
    """The numbers of the wrong ones of some steps."""
    return Field("list of wrong steps", _LISTS, partial(_is_list, steps=steps), empty=True)


def _list_of(row: Row, columns: Mapping[str, str] = NOTHING) -> str | None:
    """The column with the step numbers: one that ``--map`` named, where it named any."""
    named = [one for one in _LISTS if one in columns]
    if named or not _rated_steps.LISTED.first(row):
        return _turns.first_of(row, named)
    there = [one for one in _LISTED if one in row]
    sure = next((one for one in there if is_list(peek(row, one))), None)
    sure = sure or next((one for one in there if peek(row, one) is None), None)
    return sure or _field(len(_steps(row, columns))).first(row)


class _ErrorList(_Numbered):
    """``steps`` and the numbers of the wrong ones, counted from 0 or from 1; an empty list for
    none.

    Steps before the first wrong one are good, listed ones bad, and later ones that are not listed
    stay unlabelled: what follows an error is unknown. ``error_list/1-based-whole`` reads lists that
    name every wrong step, so that all others are good; where lists skip a step, one must be said.
    """

    name = "error_list"
    ways = (_ZERO, _ONE, _ZERO + _WHOLE, _ONE + _WHOLE)

    def matches(self, row: Row) -> str | None:
        column, steps = _list_of(row), _rated_steps.LISTED.first(row)
        return f"{steps} and the wrong ones in {column}" if column else None

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        columns = options.columns
        each = ((row, row.get(_list_of(row, columns) or "")) for row in rows)
        named = [(some, len(_steps(row, columns))) for row, some in each if some and is_list(some)]
        way, why = _settle(named, "the lists of wrong steps name")
        skip = sum(sorted(some) != [*range(min(some), max(some) + 1)] for some, _ in named)
        if skip:  # of the steps between, nobody has said that they are good
            name = next(filter(None, (_list_of(row, columns) for row in rows)), "")
            what = f"{columns.get(name, name)} skips a step between two in {counted(skip, 'row')}"
            whole = f"{what}, so all steps that it does not name may be good"
            raise UndecidedError(whole, (way + _WHOLE, way))
        return way, why

    def _wrong(self, row: Row, steps: int, columns: Mapping[str, str]) -> list[int]:
        column = _list_of(row, columns) or _turns.first_of(row, _LISTS)
        column = required(column, "nothing says which steps are wrong")
        _field(steps).same(row, (column,), columns)
        listed = row.get(column)
        if not isinstance(listed, list) or not all(type(one) is int for one in listed):
            detail = "is not a list of step numbers (empty where no step is wrong)"
            raise RowError("bad_label", f"column {column!r} {detail}")
        base = 0 if self._way.startswith(_ZERO) else 1
        wrong = sorted(one - base for one in listed)
        if wrong and not 0 <= wrong[0] <= wrong[-1] < steps:
            detail = f"{column} {listed} does not fit {counted(steps, 'step')}"
            raise RowError("bad_label", f"{detail} counted from {base}")
        return wrong


TABLE = (_ProcessBench(), _ErrorList())
