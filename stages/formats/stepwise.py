"""``prompt``, ``completions`` (the steps) and ``labels`` (one per step, hard or soft).

``stepwise/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.format import Format
from stages.formats import _rivals, _steps, rated_steps
from stages.formats._asked import Asking, meant
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


def _counts_from_minus_one(value: Any) -> bool:
    """Whether these are ratings of -1, 0 and 1, as a -1 among them shows."""
    known = isinstance(value, list) and all(
        one is None or (type(one) in (int, float) and one in (-1, 0, 1)) for one in value
    )
    return known and rated_steps.is_signed(value)


def _fits(value: Any, steps: int) -> bool:
    """Whether a value can be a rating per step; bare integers could also be step numbers."""
    if _counts_from_minus_one(value):
        return len(value) == steps
    if not isinstance(value, list) or not all(map(_steps.is_rating, value)):
        return False
    return len(value) == steps or any(type(one) is not int for one in value)


def _labels(row: Row, names: Sequence[str] = _LABELS) -> str | None:
    """The column with a rating for each step."""
    steps = _steps.step_column(row)
    if steps is None:
        return None
    return next((name for name in names if _fits(peek(row, name), len(peek(row, steps)))), None)


class _Stepwise(Asking):
    """The format; ``signed`` ratings are -1, 0 and 1."""

    name = "stepwise"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, **_steps.STEPS, "ratings": _LABELS}
    prompts = _steps.PROBLEMS
    step_lists: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None = (
        _steps.PROBLEMS,
        _steps.COLUMNS,
        _LABELS,
    )

    def __init__(self, signed: bool = False) -> None:
        self._signed = signed
        if signed:  # whoever reads lists as columns reads 0 as bad
            self.step_lists = None

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"signed": _Stepwise(signed=True), "unsigned": _Stepwise()}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        names = meant(_LABELS, columns)
        if any(_counts_from_minus_one(peek(row, _labels(row, names) or "")) for row in rows):
            return "signed", "ratings are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def matches(self, row: Row) -> str | None:
        labels = _labels(row)
        return f"{_steps.step_column(row)} and a rating each in {labels}" if labels else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _steps.step_column(row) or "completions"
        steps = _steps.texts(row.get(name), name)
        column = _rivals.rated(row, _LABELS, options.columns) or "labels"
        _rivals.require_same_ratings(row, column, _LABELS, options.columns)

        def label(value: Any, where: str) -> float | None:
            return rated_steps.label(value, where, signed=self._signed, options=options)

        labels = _steps.ratings(row.get(column), len(steps), column, label)
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _Stepwise()
