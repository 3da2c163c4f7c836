"""``contents``: turns with a role and ``parts``, and their ``systemInstruction``."""

from __future__ import annotations

from stages.contract import Columns, Conversation, Example, FormatOptions, Row
from stages.format import Format
from stages.formats import _turns
from stages.kinds import CONVERSATION


class _Contents(Format):
    name = "contents"
    kinds = (CONVERSATION,)
    columns: Columns = {"turns": ("contents",), **_turns.BEFORE, **_turns.TOOLS}

    def matches(self, row: Row) -> str | None:
        if "completions" in row or not _turns.is_turns(row.get("contents"), "parts"):
            return None
        return "contents with role and parts"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [Conversation(_turns.whole(row, "contents"), _turns.tools(row))]


FORMAT = _Contents()
