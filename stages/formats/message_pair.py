"""``chosen_messages`` and ``rejected_messages``: the turns of both sides."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns

_SIDES = (
    ("chosen_messages", "rejected_messages"),
    ("messages_chosen", "messages_rejected"),
    ("chosen_conversations", "rejected_conversations"),
    ("chosen_conversation", "rejected_conversation"),
)


def _is_turns(value: object) -> bool:
    return _turns.is_turns(value, "role") or _turns.is_turns(value, "from")


def _sides(row: Row) -> tuple[str, str] | None:
    """The columns of both sides."""
    found = (names for names in _SIDES if all(_is_turns(dict.get(row, name)) for name in names))
    return next(found, None)


class _MessagePair:
    name = "message_pair"
    tasks = ("rm",)
    fans_out = False
    columns: Columns = {
        "answers": tuple(name for names in _SIDES for name in names),
        **_pairs.BESIDE,
    }
    prompts = _pairs.PROMPTS

    def matches(self, row: Row) -> str | None:
        names = _sides(row)
        return f"{names[0]} and {names[1]}" if names else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        names = _sides(row)
        if names is None:
            raise RowError("bad_column", "chosen_messages and rejected_messages are not both turns")
        return [_pairs.pair(row, row[names[0]], row[names[1]], options)]


FORMAT = _MessagePair()
