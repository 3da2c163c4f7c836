"""Several solutions of one problem, each with its own ``steps``: ``chain_of_thoughts[].steps``.

The steps of a solution are objects with a text and a rating each, or texts beside a list of
ratings. A solution that has neither is refused by name, beside the others of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Refused, Row, StepChain
from stages.counted import counted
from stages.errors import AskError, RowError
from stages.format import Format
from stages.formats import _rivals, _steps, rated_steps
from stages.formats._asked import question
from stages.kinds import STEPS

_OUTER = (
    "chain_of_thoughts",
    "chains_of_thought",
    "chains",
    "cots",
    "solutions",
    "rollouts",
    "trajectories",
    "reasoning_chains",
    "reasoning_paths",
)
_LABELS = ("labels", "ratings", "step_labels", "rewards", "scores", "values")


def _labels(inner: Row) -> str | None:
    return next((name for name in _LABELS if isinstance(dict.get(inner, name), list)), None)


def _require_same(inner: Row, outer: str) -> None:
    """A solution's lists of ratings say the same, and all count as read.

    Args:
        outer: the column with the solutions.

    Raises:
        AskError: two say different things.
    """
    name = _labels(inner)
    if name is not None and _steps.step_column(inner) is not None:
        _rivals.require_same_ratings(inner, name, _LABELS, {}, before=f"{outer}[].")


def _is_solution(inner: Any) -> bool:
    if not isinstance(inner, dict):
        return False
    beside = _steps.step_column(inner) is not None and _labels(inner) is not None
    return beside or rated_steps.column(inner) is not None


def _column(row: Row) -> str | None:
    """The column with a list of solutions."""
    for name in _OUTER:
        value = dict.get(row, name)
        if isinstance(value, list) and value and any(map(_is_solution, value)):
            return name
    return None


def _ratings(inner: Any) -> list[Any]:
    """The ratings that a solution shows."""
    if not _is_solution(inner):
        return []
    name = rated_steps.column(inner)
    if name is None:
        return list(inner[_labels(inner) or ""])
    return [step.get(rated_steps.rating_of(step) or "") for step in inner[name]]


class _NestedSteps(Format):
    """The format; ``signed`` ratings are -1, 0 and 1."""

    name = "nested_steps"
    kinds = (STEPS,)
    columns: Columns = {"solutions": _OUTER, **_steps.PROBLEM}
    prompts = _steps.PROBLEMS
    fans_out = True

    def __init__(self, signed: bool = False) -> None:
        self._signed = signed

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"signed": _NestedSteps(signed=True), "unsigned": _NestedSteps()}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        solutions = (inner for row in rows for inner in row[_column(row) or ""])
        if rated_steps.is_signed([value for inner in solutions for value in _ratings(inner)]):
            return "signed", "ratings are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def matches(self, row: Row) -> str | None:
        name = _column(row)
        return f"{name}, each with rated steps" if name else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        for row in rows:
            name = _column(row) or ""
            for inner in filter(_is_solution, dict.get(row, name) or []):
                steps = rated_steps.column(inner) or ""
                asked = rated_steps.left_open(dict.get(inner, steps) or [], f"{name}[].{steps}")
                if asked:
                    return asked
                try:
                    _require_same(inner, name)
                except AskError as error:
                    return question(error)
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _column(row)
        if name is None:
            raise RowError("bad_column", "there is no list of solutions with rated steps")
        problem = _steps.problem(row, options)
        examples: list[Example] = []
        for number, inner in enumerate(row[name]):
            try:
                examples.append(StepChain(problem, *self._chain(inner, name, options)))
            except RowError as error:
                examples.append(Refused(error.code, f"{name}[{number}]: {error.detail}"))
        return examples

    def _chain(
        self, inner: Any, outer: str, options: FormatOptions
    ) -> tuple[list[str], list[float | None]]:
        if not isinstance(inner, dict):
            raise RowError("bad_column", f"it is a {type(inner).__name__}, not an object")
        _require_same(inner, outer)
        steps, labels = _steps.step_column(inner), _labels(inner)
        if steps is None or labels is None:
            return rated_steps.rated(inner, self._signed, options, f"{outer}[].")
        texts, values = _steps.texts(inner[steps], steps), inner[labels]
        if len(texts) != len(values):
            raise RowError(
                "label_count", f"{counted(len(texts), 'step')} and {counted(len(values), 'label')}"
            )
        return texts, [
            rated_steps.label(value, f"{labels}[{i}]", signed=self._signed, options=options)
            for i, value in enumerate(values)
        ]


FORMAT = _NestedSteps()
