"""A conversation whose user turns are steps and whose assistant turns rate them, ``+`` or ``-``.

The problem stands in the first user turn, before the first step.
"""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _steps
from stages.kinds import STEPS

_SIGNS = ("+", "-")


class _StepConversations(Format):
    name = "step_conversations"
    kinds = (STEPS,)
    columns: Columns = _steps.TURNS

    def matches(self, row: Row) -> str | None:
        column = _steps.turn_column(row)
        turns = _steps.spoken(row[column]) if column else []
        answers = [content for role, content in turns if role == "assistant"]
        if answers and all(isinstance(a, str) and a.strip() in _SIGNS for a in answers):
            return f"{column} with one step per user turn, then + or -"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        turns = _steps.conversation(row, options)
        roles = [message.role for message in turns]
        if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
            raise RowError("bad_column", "the turns do not alternate between a step and its rating")
        labels = [
            _steps.rating(message.content, f"the rating of step {i + 1}")
            for i, message in enumerate(turns[1::2])
        ]
        pieces = [message.content or "" for message in turns[::2]]
        return [_steps.chain([*pieces, ""], labels, options, own_text=False)]


FORMAT = _StepConversations()
