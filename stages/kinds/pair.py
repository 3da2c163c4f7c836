"""Preference pairs: two answers to one prompt, the chosen one and the rejected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages import kinds
from stages.contract import Message, Pair
from stages.rows import examples

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize


class Pairs(kinds.Kind):
    """Both sides are whole conversations; a loss compares the turns after the shared prompt."""

    name = formats = trains_as = kinds.PAIR
    words = "preference pairs"
    columns = ("chosen_messages", "rejected_messages", "tools", "margin", "note")
    texts = ("chosen_messages", "rejected_messages")
    ids = ("chosen_ids", "rejected_ids")
    requires = (*ids, "prompt_length")
    compares = True
    legend = ("context", "answer", "scored")
    end_of_turn = "the last token of both sides"
    plain = True

    def turns(self, example: Pair) -> tuple[list[Message], ...]:
        """Prompt, chosen and rejected answer."""
        return (example.prompt, example.chosen, example.rejected)

    def notes(self, example: Pair, normalize: Normalize) -> list[str]:
        """Peculiarities of the roles of both sides."""
        sides = ([*example.prompt, *side] for side in (example.chosen, example.rejected))
        return list(dict.fromkeys(note for side in sides for note in examples.notes(side)))

    def ready(self, example: Pair, normalize: Normalize) -> list[Any]:
        """Both sides and the margin."""
        from stages.chat_template.printed_fields import EVERY

        printed = None if EVERY in normalize.printed else normalize.printed
        return [(*examples.pair(example, printed), example.margin)]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Turns of both sides, tools, margins."""
        from stages.rows.batches import tools_text, turns_column

        chosen, rejected = ([row[i].messages if row else () for row in ready] for i in (0, 1))
        return {
            "chosen_messages": turns_column(chosen),
            "rejected_messages": turns_column(rejected),
            "tools": [tools_text(row[0]) if row else None for row in ready],
            "margin": [row[2] if row else None for row in ready],
        }


KIND = Pairs()
