"""A conversation or an exchange whose answer is the chosen one, and a separate rejected answer.

``messages`` with ``rejected_response``, ``rejected_message`` or ``rejected_messages``; ``query``
and ``response`` with ``rejected_response``.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.contract import Columns, Example, FormatOptions, Message, Pair, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns
from stages.formats._asked import Asking, one_of, open_question, says
from stages.formats._named_prompt import require_prompt
from stages.formats._roles import role_of
from stages.kinds import PAIR
from stages.rows.watched import peek

_WHOLE = ("messages", "conversations", "conversation")
_QUESTIONS = ("query", "question", "prompt", "input")
_ANSWERS = ("response", "answer", "output", "completion")
_REJECTED = ("rejected_response", "rejected_message", "rejected_messages")


def _is_whole(row: Row, name: str) -> bool:
    return _turns.are_turns(peek(row, name))


def _is_text(row: Row, name: str) -> bool:
    return says(row, name) and isinstance(peek(row, name), str)


def _ends_in_answer(turns: list[Row]) -> bool:
    return role_of(turns[-1]) == "assistant"


def _chosen(row: Row, columns: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The columns with the conversation and with the chosen answer to it, where it has none.

    Raises:
        AskError: more than one column could be either.
    """
    whole = one_of(row, _WHOLE, columns, what="conversation", holds=_is_whole)
    if whole in columns:
        return whole, None
    answer = one_of(row, _ANSWERS, columns, what="chosen answer", holds=_is_text)
    if whole is None or answer is None or not _ends_in_answer(peek(row, whole)):
        return whole, answer
    last = peek(row, whole)[-1]
    if peek(row, answer) not in (last.get("content"), last.get("value")):
        ways = f"Say which with --ignore {answer} or --map {whole}={whole}"
        raise open_question(f"{whole} and {answer} could each be the chosen answer", ways)
    _ = row[answer]  # read: the conversation says it
    return whole, None


class _RejectedResponse(Asking):
    name = "rejected_response"
    kinds = (PAIR,)
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
        whole = next((name for name in _WHOLE if _is_whole(row, name)), None)
        asked = any(peek(row, name) is not None for name in _QUESTIONS)
        answer = next((n for n in _ANSWERS if asked and isinstance(peek(row, n), str)), None)
        chosen = whole or answer
        return f"{chosen} and {rejected}" if chosen else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        rejected = one_of(row, _REJECTED, options.columns, what="rejected answer")
        rejected = rejected or _turns.chosen_of(row, _REJECTED, options.columns)
        whole, answer = _chosen(row, options.columns)
        if whole is None and answer is None:  # an empty one is refused as what it is
            answer = _turns.chosen_of(row, _ANSWERS, options.columns)
        if rejected is None or (whole is None and answer is None):
            raise RowError("bad_column", "there is no answer besides the rejected one")
        if whole is not None:
            turns = _turns.whole(row, whole)
            require_prompt(row, turns)
            turns += [Message("assistant", _turns.text(row, answer))] if answer else []
        else:
            name = one_of(row, _QUESTIONS, options.columns, what="question") or _QUESTIONS[0]
            turns = _turns.exchange(
                row, _turns.text(row, name), _turns.text(row, str(answer)), options
            )
        return [_pair(row, turns, _pairs.side(row[rejected], rejected), options)]


def _pair(row: Row, turns: list[Message], rejected: list[Message], options: FormatOptions) -> Pair:
    """The conversation's last answer against the rejected one.

    Raises:
        RowError: the conversation does not end in an answer.
    """
    margin = _pairs.margin(row, options.columns)
    if _pairs.is_whole(rejected):
        other = _turns.behind(row, rejected)
        shared = _pairs.split(turns, other)
        return Pair(shared, turns, other, margin=margin, tools=_turns.tools(row))
    if turns[-1].role != "assistant":
        raise RowError("no_answer", "the conversation next to the rejected answer has no answer")
    at = len(turns) - 1
    while len(rejected) > 1 and at and turns[at - 1].role != "user":
        at -= 1  # several turns stand for all that follows the question
    return Pair(turns[:at], turns[at:], rejected, margin=margin, tools=_turns.tools(row))


FORMAT = _RejectedResponse()
