"""Conversations: turns, some of which are trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages import kinds
from stages.contract import Conversation, Message
from stages.rows import examples, loss_mask

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize


class Conversations(kinds.Kind):
    """Which turns are trained is decided by their flags, else by ``--train-on``."""

    name = formats = trains_as = kinds.CONVERSATION
    words = "conversations"
    columns = ("messages", "turn_weights", "tools", "note")
    texts = ("messages",)
    trains_answers = True
    trims = "turns"
    plain = True

    def turns(self, example: Conversation) -> tuple[list[Message], ...]:
        """Its turns."""
        return (example.messages,)

    def notes(self, example: Conversation, normalize: Normalize) -> list[str]:
        """Peculiarities of its roles."""
        return examples.notes(example.messages)

    def ready(self, example: Conversation, normalize: Normalize) -> list[Any]:
        """The conversation, or one for each trained turn."""
        ready = loss_mask.conversation(example, normalize.train_on)
        return [*loss_mask.turn_by_turn(ready)] if normalize.turn_by_turn else [ready]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Turns, their weights, tools."""
        from stages.chat_template import loss_weights
        from stages.rows.batches import tools_text, turns_column

        turns = [row.messages if row else () for row in ready]
        return {
            "messages": turns_column(turns),
            "turn_weights": loss_weights.of_turns(turns),
            "tools": [tools_text(row) for row in ready],
        }


KIND = Conversations()
