"""``text``: bare text, encoded as it is plus the end of turn; all of it is trained."""

from __future__ import annotations

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.formats import _turns

BARE = "text"  # the role of a turn without a template


class _Text:
    name = "text"
    tasks = ("sft",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        return "text alone" if isinstance(row.get("text"), str) and "label" not in row else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        return [Conversation([Message(BARE, _turns.text(row, "text"))])]


FORMAT = _Text()
