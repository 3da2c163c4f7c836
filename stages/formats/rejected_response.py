"""A conversation or an exchange whose answer is the chosen one, and a rejected answer beside it.

``messages`` with ``rejected_response``, ``rejected_message`` or ``rejected_messages``; ``query``
and ``response`` with ``rejected_response``.
"""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Message, Pair, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns
from stages.watched import peek

_WHOLE = ("messages", "conversations", "conversation")
_QUESTIONS = ("query", "question", "prompt", "input")
_ANSWERS = ("response", "answer", "output", "completion")
_REJECTED = ("rejected_response", "rejected_message", "rejected_messages")


def _chosen(row: Row) -> str | None:
    """The column with the conversation, or with the chosen answer."""
    whole = next((name for name in _WHOLE if _turns.are_turns(peek(row, name))), None)
    if whole is not None:
        return whole
    asked = any(peek(row, name) is not None for name in _QUESTIONS)
    return next((name for name in _ANSWERS if asked and isinstance(peek(row, name), str)), None)


class _RejectedResponse:
    name = "rejected_response"
    tasks = ("rm",)
    fans_out = False
    columns: Columns = {
        "conversation": _WHOLE,
        "question": _QUESTIONS,
        "answer": _ANSWERS,
        "rejected": _REJECTED,
        **_turns.BEFORE,
        **_turns.TOOLS,
        **_pairs.MARGIN,
    }
    prompts = _QUESTIONS

    def matches(self, row: Row) -> str | None:
        rejected = _turns.first_of(row, _REJECTED)
        if rejected is None or any(name.startswith("chosen") for name in row):
            return None
        chosen = _chosen(row)
        return f"{chosen} and {rejected}" if chosen else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        rejected, chosen = _turns.first_of(row, _REJECTED), _chosen(row)
        if rejected is None or chosen is None:
            raise RowError("bad_column", "there is no answer beside the rejected one")
        for names in (_REJECTED, _ANSWERS):
            found = [name for name in names if peek(row, name) not in (None, "")]
            if len(found) > 1 and not any(name in options.columns for name in names):
                raise RowError("bad_column", f"{' and '.join(found)} could each be the answer")
        if chosen in _WHOLE:
            turns = _turns.whole(row, chosen)
            return [_pair(row, turns, _pairs.side(row[rejected], rejected))]
        name = _turns.chosen_of(row, _QUESTIONS, options.columns) or _QUESTIONS[0]
        turns = _turns.exchange(row, _turns.text(row, name), row[chosen], options)
        return [_pair(row, turns, _pairs.side(row[rejected], rejected))]


def _pair(row: Row, turns: list[Message], rejected: list[Message]) -> Pair:
    """The conversation's last answer against the rejected one.

    Raises:
        RowError: the conversation does not end in an answer.
    """
    if _pairs.is_whole(rejected):
        other = _turns.behind(row, rejected)
        shared = _pairs.split(turns, other)
        return Pair(shared, turns, other, _pairs.margin(row), _turns.tools(row))
    if turns[-1].role != "assistant":
        raise RowError("no_answer", "the conversation beside the rejected answer has no answer")
    at = len(turns) - 1
    while len(rejected) > 1 and at and turns[at - 1].role != "user":
        at -= 1  # several turns stand for all that follows the question
    return Pair(turns[:at], turns[at:], rejected, _pairs.margin(row), _turns.tools(row))


FORMAT = _RejectedResponse()
