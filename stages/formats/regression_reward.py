"""One answer and a number for it: data for a regression, which no pair can be made of.

Recognised, and refused by that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError

_ANSWERS = ("completion", "response", "answer", "output", "messages", "conversations")
_SECOND = ("chosen", "rejected", "responses", "answers", "completions", "candidates", "label")
_NUMBERS = (
    "reward",
    "score",
    "rating",
    "helpfulness",
    "quality",
    "reward_score",
    "overall_score",
    "correctness",
)


class _RegressionReward:
    name = "regression_reward"
    tasks = ("rm",)
    fans_out = False
    columns: Columns = {"answer": _ANSWERS, "number": _NUMBERS}

    def matches(self, row: Row) -> str | None:
        if any(name in row for name in _SECOND):
            return None
        answers = [name for name in _ANSWERS if isinstance(row.get(name), (str, list))]
        number = next((name for name in _NUMBERS if type(row.get(name)) in (int, float)), None)
        return f"one {answers[0]} with one {number}" if len(answers) == 1 and number else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        said = next(reason for row in rows if (reason := self.matches(row)))
        what = f"{said} a row is data for a regression, and this trains reward models on pairs"
        return what, (
            "Give rows with two answers to one prompt (chosen and rejected), or with all answers "
            "to one prompt and their scores (responses and scores)"
        )

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        raise RowError("regression_reward", "one answer with a number is no pair of two answers")


FORMAT = _RegressionReward()
