"""One answer and a number for it: data for a regression, from which no pair can be made.

Recognised, and refused by that name.
"""

from __future__ import annotations

from stages.contract import Row
from stages.formats._unusable import Unusable
from stages.kinds import PAIR
from stages.rows.watched import peek

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


def _evidence(row: Row) -> str | None:
    if any(name in row for name in _SECOND):
        return None
    answers = [name for name in _ANSWERS if isinstance(peek(row, name), (str, list))]
    number = next((name for name in _NUMBERS if type(peek(row, name)) in (int, float)), None)
    return f"one {answers[0]} with one {number}" if len(answers) == 1 and number else None


FORMAT = Unusable(
    name="regression_reward",
    kinds=(PAIR,),
    columns={"answer": _ANSWERS, "number": _NUMBERS},
    evidence=_evidence,
    what="data for a regression, and this trains reward models on pairs",
    instead=(
        "Give rows with two answers to one prompt (chosen and rejected), or with all answers "
        "to one prompt and their scores (responses and scores)"
    ),
)
