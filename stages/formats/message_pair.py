"""``chosen_messages`` and ``rejected_messages``: the turns of both sides."""

from __future__ import annotations

from stages.formats import _turns
from stages.formats._named_sides import NamedSides
from stages.rows.watched import peek

FORMAT = NamedSides(
    "message_pair",
    (
        ("chosen_messages", "rejected_messages"),
        ("messages_chosen", "messages_rejected"),
        ("chosen_conversations", "rejected_conversations"),
        ("chosen_conversation", "rejected_conversation"),
    ),
    holds=lambda row, name: _turns.are_turns(peek(row, name)),
    lacking="chosen_messages and rejected_messages are not both turns",
)
