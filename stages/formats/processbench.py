"""``problem``, ``steps`` and the index of the first wrong step; -1 or null for none.

``label`` counts from 0, as ProcessBench does. A column with another name (``first_error_step``) may
count from 0 or from 1. Whether a step after the first error is right is unknown, so those steps
stay unlabelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _numbering, _rivals, _steps, _turns
from stages.formats._asked import Asking, meant
from stages.kinds import STEPS
from stages.rows.unread import mapped
from stages.rows.watched import peek

_OWN = "label"
_NAMED = ("first_error", "first_error_step", "first_error_index", "error_step", "error_index")
_INDICES = (_OWN, *_NAMED)
_ENOUGH = 4  # rows that show no -1 and no step beyond the second before that is suspicious


def _is_index(value: Any) -> bool:
    return value is None or type(value) is int


def _said(value: Any) -> tuple[bool, Any]:
    """What a value says: null is -1, and a boolean no number."""
    return isinstance(value, bool), -1 if value is None else value


def _column(row: Row, names: Sequence[str] = _INDICES) -> str | None:
    """The column of an index that holds one, before one that holds null."""
    there = [name for name in names if name in row]
    return _turns.first_of(row, there) or next(iter(there), None)


def _other(row: Row, columns: Mapping[str, str]) -> str | None:
    """The column of an index that may count from 1: ``label`` does not say the same."""
    able = meant(_INDICES, columns)
    name = _column(row, [one for one in able if one != _OWN])
    if name is None or (
        _OWN in able and _OWN in row and _said(peek(row, _OWN)) == _said(peek(row, name))
    ):
        return None
    return name


class _ProcessBench(Asking):
    """The format; ``base`` is the number of the first step, None where the sample shows none."""

    name = "processbench"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, **_steps.STEPS, "first error": _INDICES}
    prompts = _steps.PROBLEMS
    first_error = True

    def __init__(self, base: int | None = None) -> None:
        self._base = base

    @property
    def variants(self) -> Mapping[str, Format]:
        return {_numbering.ZERO: _ProcessBench(0), _numbering.ONE: _ProcessBench(1)}

    def matches(self, row: Row) -> str | None:
        steps = _steps.step_column(row)
        name = next((n for n in _INDICES if n in row and _is_index(row[n])), None)
        if name is None or steps is None:
            return None
        return f"{steps} and the index of the first error in {name}"

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        others = [(name, row) for row in rows if (name := _other(row, columns))]
        said = [row[name] for name, row in others]
        if all(_said(value) == _said(None) for value in said):  # none, or the same from 0 and 1
            return "", ""
        named = [
            ([row[name]] if type(row[name]) is int else [], len(row[_steps.step_column(row) or ""]))
            for name, row in others
        ]
        none_said = any(_said(value) == _said(None) for value in said)
        return _numbering.settle(named, f"the values of {others[0][0]} name", none_said)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        if question := super().doubt(rows, columns):
            return question
        if len(rows) < _ENOUGH or any(name in columns for name in _INDICES):
            return None
        seen = {row.get(_OWN, -1) for row in rows if _column(row, _NAMED) is None}
        longest = max(len(row[_steps.step_column(row) or ""]) for row in rows)
        if seen != {0, 1} or longest < 3:
            return None
        what = "label is 0 or 1 in every row: the index of the first wrong step, or a verdict"
        return f"{what} on the whole solution", "If it is the index, add --format processbench"

    def _first(self, number: Any, column: str, steps: int, options: FormatOptions) -> int | None:
        """The place of the first wrong step, from 0; None where there is none.

        Raises:
            RowError: it is no step, or ``label`` is to count from 1.
        """
        if _said(number) == _said(None):
            return None
        if column == _OWN and self._base:
            other = mapped(_NAMED[0], options.columns.get(_OWN, _OWN))
            raise RowError("bad_label", f"{_OWN} counts from 0; to read it from 1, add {other}")
        if column != _OWN and self._base is None:
            ways = " or ".join(f"--format {self.name}/{way}" for way in self.variants)
            detail = f"{column} {number!r}, and no sampled row shows whether it counts from 0 or 1"
            raise RowError("bad_label", f"{detail}; say which with {ways}")
        base = self._base or 0
        if type(number) is not int or not 0 <= number - base < steps:
            counting = f" counted from {base}" if base else ""
            raise RowError(
                "bad_label", f"{column} {number!r} is not a step of {steps}{counting}, nor -1"
            )
        return number - base

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _steps.step_column(row) or "steps"
        steps = _steps.texts(row.get(name), name)
        column = _column(row, meant(_INDICES, options.columns))
        if column is None:
            raise RowError("bad_column", "nothing says which step is the first wrong one")
        _rivals.require_same(
            row,
            column,
            _INDICES,
            options.columns,
            what="the index of the first wrong step",
            fits=lambda value: True,
            said=_said,
        )
        first = self._first(row[column], column, len(steps), options)
        labels: list[float | None] = [1.0] * len(steps)
        if first is not None:
            labels[first:] = [0.0, *([None] * (len(steps) - first - 1))]
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _ProcessBench()
