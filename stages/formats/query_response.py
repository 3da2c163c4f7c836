"""A question column and an answer column, under any of their usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns
from stages.formats._asked import one_of, says
from stages.kinds import CONVERSATION
from stages.rows.watched import peek

QUESTIONS = ("question", "query", "problem", "prompt", "input", "input_text", "text_input")
ANSWERS = ("answer", "response", "solution", "output", "output_text")


def _holds(row: Row, name: str) -> bool:
    """Whether a column says something that can be a question or an answer."""
    value = peek(row, name)
    return says(row, name) and (isinstance(value, str) or _turns.are_turns(value))


def _column(row: Row, what: str, names: tuple[str, ...], options: FormatOptions) -> str:
    """The column of the question, or of the answer.

    Raises:
        RowError: there is none, or two say different things.
    """
    columns = options.columns
    name = one_of(row, names, columns, what=what, holds=_holds) or _turns.chosen_of(
        row, names, columns
    )
    if name is None:
        raise RowError("bad_column", f"there is no {what} column")
    return name


class _QueryResponse(Format):
    name = "query_response"
    kinds = (CONVERSATION,)
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
            said = [[name for name in names if _holds(row, name)] for row in rows]
            able = [name for name in names if any(name in some for some in said)]
            if any(peek(r, n) != peek(r, s[0]) for r, s in zip(rows, said, strict=True) for n in s):
                flags = " or ".join(f"--map {what}={name}" for name in able)
                return f"{' and '.join(able)} could each be the {what}", f"Say which with {flags}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        stray = peek(row, "instruction") not in (None, "")
        if stray and options.columns.keys().isdisjoint(QUESTIONS):
            detail = "'instruction' may be a question too; see --format alpaca --map input=COLUMN"
            raise RowError("bad_column", detail)
        question = _column(row, "question", QUESTIONS, options)
        answer = _column(row, "answer", ANSWERS, options)
        answered = _turns.text(row, answer)
        if _turns.are_turns(row[question]):
            turns = [*_turns.whole(row, question), Message("assistant", answered)]
        else:
            turns = _turns.exchange(row, _turns.text(row, question), answered, options)
        return [Conversation(turns, _turns.tools(row))]


FORMAT = _QueryResponse()
