"""``text``: bare text, encoded as it is plus the end of turn; all of it is trained.

A text whose row says who speaks is one turn of a conversation, not a text of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stages.contract import BARE, Columns, Conversation, Example, FormatOptions, Message, Row
from stages.conversations import templated
from stages.errors import RowError
from stages.format import Format
from stages.formats import _replies, _roles, _turns
from stages.kinds import CONVERSATION
from stages.rows.watched import peek


class _Text(Format):
    name = "text"
    kinds = (CONVERSATION,)
    columns: Columns = {"text": ("text",), **_turns.TOOLS}
    prompts = ("text",)

    def matches(self, row: Row) -> str | None:
        if not isinstance(row.get("text"), str) or _replies.where(row) == "":
            return None
        return "text alone"

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        if not any(map(_speaker, rows)):
            return None
        return "the texts are turns: role says who speaks each of them", (
            "Give rows with whole conversations (messages), or train each text by itself with "
            "--ignore role"
        )

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        text = _turns.text(row, "text")
        if role := _speaker(row):
            raise RowError("bad_column", f"the text is a turn: role is {role!r}")
        parsed = templated.read(text)
        if parsed is None:
            return [Conversation([Message(BARE, text)])]
        dialect, turns = parsed
        templated.require_allowed(dialect, "the text", options.already_templated)
        return [Conversation(turns.messages, _turns.tools(row))]


def _speaker(row: Row) -> str | None:
    """Who says the text, where the row says so."""
    role = peek(row, "role")
    return role if isinstance(role, str) and role.lower() in _roles.ROLES else None


FORMAT = _Text()
