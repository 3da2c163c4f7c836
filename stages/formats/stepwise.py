"""``prompt``, ``completions`` (the steps) and ``labels`` (one per step, hard or soft)."""

from __future__ import annotations

from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.format import Format
from stages.formats import _steps, _turns
from stages.kinds import STEPS
from stages.rows.watched import peek

_LABELS = (
    "labels",
    "label",
    "ratings",
    "rating",
    "step_labels",
    "rewards",
    "scores",
    "step_rewards",
    "step_scores",
)


def _fits(value: Any, steps: int) -> bool:
    """Whether a value can be a rating per step; bare integers could also be step numbers."""
    if not isinstance(value, list) or not all(map(_steps.is_rating, value)):
        return False
    return len(value) == steps or any(type(one) is not int for one in value)


def _labels(row: Row) -> str | None:
    """The column with a rating for each step."""
    steps = _steps.step_column(row)
    if steps is None:
        return None
    return next((name for name in _LABELS if _fits(peek(row, name), len(peek(row, steps)))), None)


class _Stepwise(Format):
    name = "stepwise"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, **_steps.STEPS, "ratings": _LABELS}
    prompts = _steps.PROBLEMS
    step_lists = (_steps.PROBLEMS, _steps.COLUMNS, _LABELS)

    def matches(self, row: Row) -> str | None:
        labels = _labels(row)
        return f"{_steps.step_column(row)} and a rating each in {labels}" if labels else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _steps.step_column(row) or "completions"
        steps = _steps.texts(row.get(name), name)
        column = _turns.chosen_of(row, _LABELS, options.columns) or "labels"
        labels = _steps.ratings(row.get(column), len(steps), column)
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _Stepwise()
