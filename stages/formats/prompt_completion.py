"""``prompt`` and ``completion``, as text (a user and an assistant turn) or as messages."""

from __future__ import annotations

from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns
from stages.kinds import CONVERSATION


class _PromptCompletion(Format):
    name = "prompt_completion"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "question": ("prompt",),
        "answer": ("completion",),
        **_turns.BEFORE,
        **_turns.TOOLS,
    }
    prompts = ("prompt",)
    exchange = (("prompt",), ("completion",))

    def matches(self, row: Row) -> str | None:
        return "prompt and completion" if "prompt" in row and "completion" in row else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        prompt, completion = row.get("prompt"), row.get("completion")
        if isinstance(prompt, list) and isinstance(completion, list):
            turns = _turns.whole(row, "prompt") + _turns.conversation(completion, "completion")
            return [Conversation(turns, _turns.tools(row))]
        if isinstance(prompt, list) and isinstance(completion, str):
            turns = [*_turns.whole(row, "prompt"), Message("assistant", completion)]
            return [Conversation(turns, _turns.tools(row))]
        if isinstance(prompt, list) or isinstance(completion, list):
            raise RowError("bad_column", "a completion of turns needs a prompt of turns")
        asked, answer = _turns.text(row, "prompt"), _turns.text(row, "completion")
        return [Conversation(_turns.exchange(row, asked, answer, options), _turns.tools(row))]


FORMAT = _PromptCompletion()
