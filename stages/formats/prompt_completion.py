"""``prompt`` and ``completion``, as text (a user and an assistant turn) or as messages."""

from __future__ import annotations

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats import _turns


class _PromptCompletion:
    name = "prompt_completion"
    tasks = ("sft",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        if "prompt" in row and "completion" in row and "label" not in row:
            return "prompt and completion"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        prompt, completion = row.get("prompt"), row.get("completion")
        if isinstance(prompt, list) and isinstance(completion, list):
            turns = _turns.conversation(prompt, "prompt")
            turns += _turns.conversation(completion, "completion")
            return [Conversation(turns, _turns.tools(row))]
        if isinstance(prompt, list) or isinstance(completion, list):
            raise RowError("bad_column", "prompt and completion must both be text or both turns")
        user = Message("user", _turns.text(row, "prompt"))
        return [Conversation([user, Message("assistant", _turns.text(row, "completion"))])]


FORMAT = _PromptCompletion()
