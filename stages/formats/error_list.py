"""``steps`` and the numbers of the wrong ones, counted from 0 or from 1; an empty list for none.

Steps before the first wrong one are good, listed ones bad, and later ones that are not listed stay
unlabelled: what follows an error is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.counted import counted
from stages.errors import RowError
from stages.format import Format
from stages.formats import _numbering, _rivals, _steps, _turns
from stages.formats._asked import Asking
from stages.kinds import STEPS
from stages.rows.watched import peek

_NAMED = (
    "error_steps",
    "errors",
    "error_list",
    "error_indices",
    "wrong_steps",
    "incorrect_steps",
    "mistakes",
)
_ERRORS = (*_NAMED, "label", "labels")


def _is_list(value: Any, steps: int) -> bool:
    """Whether a value can be a list of distinct step numbers, in order."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        return False
    return value == sorted(set(value)) and (not value or (value[0] >= 0 and value[-1] <= steps))


def _column(row: Row) -> str | None:
    """The column with the step numbers."""
    name = _steps.step_column(row)
    if name is None:
        return None
    for column in _NAMED:
        if column in row and (peek(row, column) is None or isinstance(peek(row, column), list)):
            return column
    columns = (column for column in _ERRORS if column in row)
    count = len(peek(row, name))
    return next((column for column in columns if _is_list(peek(row, column), count)), None)


def _meant(row: Row, columns: Mapping[str, str]) -> str | None:
    """The column with the step numbers: one that ``--map`` named, where it named any."""
    mapped = [name for name in _ERRORS if name in columns]
    return _turns.first_of(row, mapped) if mapped else _column(row)


class _ErrorList(Asking):
    """The format; ``base`` is the number of the first step."""

    name = "error_list"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, **_steps.STEPS, "wrong steps": _ERRORS}
    prompts = _steps.PROBLEMS

    def __init__(self, base: int = 1) -> None:
        self._base = base

    @property
    def variants(self) -> Mapping[str, Format]:
        return {_numbering.ZERO: _ErrorList(0), _numbering.ONE: _ErrorList(1)}

    def matches(self, row: Row) -> str | None:
        column = _column(row)
        return f"{_steps.step_column(row)} and the wrong ones in {column}" if column else None

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        named = [
            (row[name], len(row[_steps.step_column(row) or ""]))
            for row in rows
            if (name := _meant(row, columns)) and isinstance(row[name], list) and row[name]
        ]
        return _numbering.settle(named, "the lists of wrong steps name")

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _steps.step_column(row) or "steps"
        steps = _steps.texts(row.get(name), name)
        column = _turns.chosen_of(row, _ERRORS, options.columns) or _column(row)
        if column is None:
            raise RowError("bad_column", "nothing says which steps are wrong")
        _rivals.require_same(
            row,
            column,
            _ERRORS,
            options.columns,
            what="the list of wrong steps",
            fits=lambda value: _is_list(value, len(steps)),
            said=lambda value: value,
        )
        listed = row.get(column)
        if not isinstance(listed, list) or not all(type(one) is int for one in listed):
            raise RowError(
                "bad_label",
                f"column {column!r} is not a list of step numbers (empty where no step is wrong)",
            )
        wrong = sorted(one - self._base for one in listed)
        if wrong and not 0 <= wrong[0] <= wrong[-1] < len(steps):
            detail = (
                f"{column} {listed} does not fit {counted(len(steps), 'step')} counted from "
                f"{self._base}"
            )
            raise RowError("bad_label", detail)
        labels: list[float | None] = [1.0] * len(steps)
        if wrong:
            labels[wrong[0] :] = [None] * (len(steps) - wrong[0])
        for one in wrong:
            labels[one] = 0.0
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _ErrorList()
