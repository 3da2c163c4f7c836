"""``messages``: turns with role and content, optionally tools and per-message flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.format import Format
from stages.formats import _named_prompt, _turns, prompts_alone
from stages.kinds import CONVERSATION


class _OpenAI(Format):
    name = "openai"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "turns": ("messages",),
        **_named_prompt.COLUMNS,
        **_turns.BEFORE,
        **_turns.TOOLS,
    }
    dialogue = ("messages",)

    def matches(self, row: Row) -> str | None:
        if _turns.has_turns(row.get("messages"), "role"):
            return "messages with role and content"
        return None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        return prompts_alone.unanswered(rows, ("messages",))

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [Conversation(_named_prompt.dialogue(row, "messages"), _turns.tools(row))]


FORMAT = _OpenAI()
