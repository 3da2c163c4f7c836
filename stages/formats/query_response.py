"""A question column and an answer column, under any of their usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats import _turns
from stages.watched import peek

QUESTIONS = ("question", "query", "problem", "prompt", "input", "input_text", "text_input")
ANSWERS = ("answer", "response", "solution", "output", "output_text")


def _texts(row: Row, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if isinstance(row.get(name), str)]


class _QueryResponse:
    name = "query_response"
    tasks = ("sft",)
    fans_out = False
    columns: Columns = {
        "question": QUESTIONS,
        "answer": ANSWERS,
        **_turns.BEFORE,
        **_turns.TOOLS,
    }
    prompts = QUESTIONS
    exchange = (QUESTIONS, ANSWERS)

    def matches(self, row: Row) -> str | None:
        question, answer = _turns.first_of(row, QUESTIONS), _turns.first_of(row, ANSWERS)
        if "instruction" in row or "chosen" in row or question is None or answer is None:
            return None
        asked = isinstance(row[question], str) or _turns.are_turns(row[question])
        if asked and isinstance(row[answer], str):
            return f"{question} and {answer}"
        return None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        for what, names in (("question", QUESTIONS), ("answer", ANSWERS)):
            if any(name in columns for name in names):
                continue
            found = [name for name in names if any(isinstance(r.get(name), str) for r in rows)]
            if len(found) > 1 and any(len(_texts(row, names)) > 1 for row in rows):
                flags = " or ".join(f"--map {what}={name}" for name in found)
                return f"{' and '.join(found)} could each be the {what}", f"Say which with {flags}"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        stray = peek(row, "instruction") not in (None, "")
        if stray and options.columns.keys().isdisjoint(QUESTIONS):
            detail = "column 'instruction' may be asked too; see --format alpaca --map input=COLUMN"
            raise RowError("bad_column", detail)
        question = _turns.chosen_of(row, QUESTIONS, options.columns)
        answer = _turns.chosen_of(row, ANSWERS, options.columns)
        if question is None or answer is None:
            missing = "question" if question is None else "answer"
            raise RowError("bad_column", f"there is no {missing} column")
        answered = _turns.text(row, answer)
        if _turns.are_turns(row[question]):
            turns = [*_turns.whole(row, question), Message("assistant", answered)]
        else:
            turns = _turns.exchange(row, _turns.text(row, question), answered, options)
        return [Conversation(turns, _turns.tools(row))]


FORMAT = _QueryResponse()
