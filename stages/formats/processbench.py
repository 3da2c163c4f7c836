"""``problem``, ``steps`` and the 0-based index of the first wrong step; -1 or null for none.

Whether a step after the first error is right is unknown, so those steps stay unlabelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _steps, _turns
from stages.kinds import STEPS

_NAMED = ("first_error", "first_error_step", "first_error_index", "error_step", "error_index")
_INDICES = ("label", *_NAMED)
_ENOUGH = 4  # rows that show no -1 and no step beyond the second before that is suspicious


def _column(row: Row) -> str | None:
    return next((name for name in _INDICES if name in row), None)


class _ProcessBench(Format):
    name = "processbench"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, **_steps.STEPS, "first error": _INDICES}
    prompts = _steps.PROBLEMS
    first_error = True

    def matches(self, row: Row) -> str | None:
        name, steps = _column(row), _steps.step_column(row)
        if name is None or steps is None or not (row[name] is None or type(row[name]) is int):
            return None
        return f"{steps} and the index of the first error in {name}"

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        if len(rows) < _ENOUGH or any(name in columns for name in _INDICES):
            return None
        seen = {row.get("label", -1) for row in rows}
        longest = max(len(row[_steps.step_column(row) or ""]) for row in rows)
        if seen != {0, 1} or longest < 3:
            return None
        what = "label is 0 or 1 in every row: the index of the first wrong step, or a verdict"
        return f"{what} on the whole solution", "If it is the index, add --format processbench"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _steps.step_column(row) or "steps"
        steps = _steps.texts(row.get(name), name)
        column = _turns.chosen_of(row, _INDICES, options.columns) or _column(row)
        if column is None:
            raise RowError("bad_column", "nothing says which step is the first wrong one")
        first = -1 if row.get(column) is None else row[column]
        if type(first) is not int or not -1 <= first < len(steps):
            raise RowError("bad_label", f"{column} {first!r} is not a step of {len(steps)}, nor -1")
        labels: list[float | None] = [1.0] * len(steps)
        if first >= 0:
            labels[first:] = [0.0, *([None] * (len(steps) - first - 1))]
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _ProcessBench()
