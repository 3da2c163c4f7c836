"""``conversations``: turns with from and value, in any spelling of the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.formats import _named_prompt, _turns, prompts_alone
from stages.watched import peek

_COLUMNS = ("conversations", "conversation")


class _ShareGPT:
    name = "sharegpt"
    tasks = ("sft",)
    fans_out = False
    columns: Columns = {
        "turns": (*_COLUMNS, "messages"),
        "untrained speaker": ("mask",),
        **_named_prompt.COLUMNS,
        **_turns.BEFORE,
        **_turns.TOOLS,
    }

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or "rejected" in row:
            return None
        for column in _COLUMNS:
            for key, text in (("from", "value"), ("role", "content")):
                if _turns.has_turns(row.get(column), key):
                    return f"{column} with {key} and {text}"
        return (
            "messages with from and value"
            if _turns.has_turns(row.get("messages"), "from")
            else None
        )

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        return prompts_alone.unanswered(rows, (*_COLUMNS, "messages"))

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        column = _turns.first_of(row, (*_COLUMNS, "messages")) or "conversations"
        masked = peek(row, "mask")
        if isinstance(masked, str) and _turns.ROLES.get(masked.lower()) == "user":
            _ = row["mask"]  # read: the user's turns are not trained anyway
        return [Conversation(_named_prompt.dialogue(row, column), _turns.tools(row))]


FORMAT = _ShareGPT()
