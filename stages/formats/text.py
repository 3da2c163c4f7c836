"""``text``: bare text, encoded as it is plus the end of turn; all of it is trained."""

from __future__ import annotations

from stages import templated
from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.formats import _turns

BARE = "text"  # the role of a turn without a template


class _Text:
    name = "text"
    tasks = ("sft",)
    fans_out = False
    columns: Columns = {"text": ("text",), **_turns.TOOLS}
    prompts = ("text",)

    def matches(self, row: Row) -> str | None:
        return "text alone" if isinstance(row.get("text"), str) else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        text = _turns.text(row, "text")
        found = templated.read(text)
        if found is None:
            return [Conversation([Message(BARE, text)])]
        templated.require_allowed(found[0], "the text", options.already_templated)
        return [Conversation(found[1].messages, _turns.tools(row))]


FORMAT = _Text()
