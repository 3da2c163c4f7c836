"""``conversations``: turns with from and value, in any spelling of the roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _named_prompt, _roles, _turns, prompts_alone
from stages.kinds import CONVERSATION
from stages.rows.watched import peek

_COLUMNS = ("conversations", "conversation")


class _ShareGPT(Format):
    name = "sharegpt"
    kinds = (CONVERSATION,)
    columns: Columns = {
        "turns": (*_COLUMNS, "messages"),
        "untrained speaker": ("mask",),
        **_named_prompt.COLUMNS,
        **_turns.BEFORE,
        **_turns.TOOLS,
    }
    dialogue = (*_COLUMNS, "messages")

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

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column = _turns.first_of(row, (*_COLUMNS, "messages")) or "conversations"
        turns = _named_prompt.dialogue(row, column)
        masked = peek(row, "mask")
        role = _roles.ROLES.get(masked.lower()) if isinstance(masked, str) else None
        if role is not None:
            _ = row["mask"]  # read: it names whose turns are not trained
            turns = [_untrained(turn, masked) if turn.role == role else turn for turn in turns]
        return [Conversation(turns, _turns.tools(row))]


def _untrained(turn: Message, speaker: str) -> Message:
    """A turn of a speaker that the row leaves untrained.

    Raises:
        RowError: the turn itself says that it is trained.
    """
    if turn.trained:
        raise RowError("bad_weight", f"mask is {speaker}, and a turn of that speaker is trained")
    return replace(turn, trained=False)


FORMAT = _ShareGPT()
