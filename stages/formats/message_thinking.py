"""``problem``, ``message_thinking`` and ``message_content``: reasoning outside the answer."""

from __future__ import annotations

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns
from stages.formats._asked import one_of
from stages.formats.query_response import QUESTIONS
from stages.kinds import CONVERSATION

_ASKED = (*QUESTIONS, "instruction")


class _MessageThinking(Format):
    name = "message_thinking"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "question": _ASKED,
        "reasoning": ("message_thinking",),
        "answer": ("message_content",),
        **_turns.BEFORE,
        **_turns.TOOLS,
    }
    prompts = _ASKED

    def matches(self, row: Row) -> str | None:
        question = _turns.first_of(row, _ASKED)
        if question and "message_thinking" in row and isinstance(row.get("message_content"), str):
            return f"{question}, message_thinking and message_content"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        question = one_of(row, _ASKED, options.columns, what="question")
        if question is None:
            raise RowError("bad_column", "there is no question column")
        answer = _turns.text(row, "message_content")
        messages = _turns.exchange(row, _turns.text(row, question), answer, options)
        if row.get("message_thinking") not in (None, ""):
            thinking = _turns.text(row, "message_thinking")
            messages[-1].fields = {"reasoning_content": thinking}
        return [Conversation(messages, _turns.tools(row))]


FORMAT = _MessageThinking()
