"""A question and an answer with a step token after each step, and a list of ``labels``."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.formats import _rivals, _steps, _turns
from stages.formats._asked import Asking
from stages.kinds import STEPS

_LABELS = ("labels", "label", "values", "value", "ratings", "step_labels")


class _TaggedMessages(Asking):
    name = "tagged_messages"
    kinds = (STEPS,)
    columns: Columns = {**_steps.TURNS, "ratings": _LABELS}

    def matches(self, row: Row) -> str | None:
        column, labels = _steps.turn_column(row), _turns.first_of(row, _LABELS)
        if column is None or labels is None or not isinstance(row[labels], list):
            return None
        role, content = _steps.spoken(row[column])[-1]
        if role == "assistant" and isinstance(content, str):
            return f"{column} with steps in the answer, and {labels}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column = _rivals.rated(row, _LABELS, options.columns) or "labels"
        _rivals.require_same_ratings(row, column, _LABELS, options.columns)
        turns = _steps.conversation(row, options)
        if [message.role for message in turns] != ["user", "assistant"]:
            raise RowError("bad_column", "the turns are not one question and one answer")
        text = turns[1].content or ""
        pieces = text.split(_steps.find_tag(text, options))
        _steps.require_tail(pieces)
        labels = _steps.ratings(row.get(column), len(pieces) - 1, column)
        return [StepChain(turns[0].content or "", pieces[:-1], labels)]


FORMAT = _TaggedMessages()
