"""``conversations``: turns with from and value, in any spelling of the roles."""

from __future__ import annotations

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.formats import _named_prompt, _turns

_COLUMNS = ("conversations", "conversation")


class _ShareGPT:
    name = "sharegpt"
    tasks = ("sft",)
    fans_out = False
    columns: Columns = {
        "turns": (*_COLUMNS, "messages"),
        **_named_prompt.COLUMNS,
        **_turns.BEFORE,
        **_turns.TOOLS,
    }

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or "rejected" in row:
            return None
        for column in _COLUMNS:
            for key, text in (("from", "value"), ("role", "content")):
                if _turns.is_turns(row.get(column), key):
                    return f"{column} with {key} and {text}"
        return (
            "messages with from and value" if _turns.is_turns(row.get("messages"), "from") else None
        )

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        column = _turns.first_of(row, (*_COLUMNS, "messages")) or "conversations"
        return [Conversation(_named_prompt.dialogue(row, column), _turns.tools(row))]


FORMAT = _ShareGPT()
