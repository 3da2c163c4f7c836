"""A question column and an answer column, under any of their usual names."""

from __future__ import annotations

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats import _turns

_QUESTIONS = ("question", "query", "problem", "prompt")
_ANSWERS = ("answer", "response", "solution")


class _QueryResponse:
    name = "query_response"
    tasks = ("sft",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        question, answer = _turns.first_of(row, _QUESTIONS), _turns.first_of(row, _ANSWERS)
        if question and answer and isinstance(row[question], str) and isinstance(row[answer], str):
            return f"{question} and {answer}"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        question, answer = _turns.first_of(row, _QUESTIONS), _turns.first_of(row, _ANSWERS)
        if question is None or answer is None:
            missing = "question" if question is None else "answer"
            raise RowError("bad_column", f"there is no {missing} column")
        user = Message("user", _turns.text(row, question))
        return [Conversation([user, Message("assistant", _turns.text(row, answer))])]


FORMAT = _QueryResponse()
