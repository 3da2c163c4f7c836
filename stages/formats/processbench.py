"""``problem``, ``steps`` and ``label``: the 0-based index of the first wrong step, -1 for none.

Whether a step after the first error is right is unknown, so those steps stay unlabelled.
"""

from __future__ import annotations

from stages.contract import Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.formats import _steps, _turns


class _ProcessBench:
    name = "processbench"
    tasks = ("prm",)
    fans_out = False
    first_error = True

    def matches(self, row: Row) -> str | None:
        if isinstance(row.get("steps"), list) and type(row.get("label")) is int:
            return "problem, steps and the index of the first error"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        steps = _steps.texts(row.get("steps"), "steps")
        first = row.get("label")
        if type(first) is not int or not -1 <= first < len(steps):
            raise RowError("bad_label", f"label {first!r} is no step of {len(steps)}, nor -1")
        labels: list[float | None] = [1.0] * len(steps)
        if first >= 0:
            labels[first:] = [0.0, *([None] * (len(steps) - first - 1))]
        return [StepChain(_turns.text(row, "problem"), steps, labels)]


FORMAT = _ProcessBench()
