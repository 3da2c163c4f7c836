"""``conversations``: turns with from and value, in any spelling of the roles."""

from __future__ import annotations

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.formats import _turns


class _ShareGPT:
    name = "sharegpt"
    tasks = ("sft",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or "rejected" in row:
            return None
        if _turns.is_turns(row.get("conversations"), "from"):
            return "conversations with from and value"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        messages = _turns.conversation(row.get("conversations"), "conversations")
        system = row.get("system", row.get("system_prompt"))
        if isinstance(system, str) and system and messages[0].role != "system":
            messages.insert(0, Message("system", system))
        return [Conversation(messages, _turns.tools(row))]


FORMAT = _ShareGPT()
