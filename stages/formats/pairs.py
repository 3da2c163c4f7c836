"""Two answers whose columns say which is the chosen one."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Message, Pair, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns, rankings
from stages.formats._asked import one_of, open_question, says, two_of
from stages.formats._messages import role_of
from stages.rows import stop_text
from stages.rows.column_names import peek
from stages.rows.dialects import DIALOGUE

_Turns = list[Message]


class _NamedSides(_pairs.PairFormat):
    """A format whose answers stand under one of several pairs of names.

    Args:
        says: what its rows are, in one sentence.
        sides: the names of the chosen and of the rejected answer's column, the usual ones first.
        holds: whether a row's column can be an answer.
        lacking: what a row is refused with that has no such pair; None reads the usual columns.
    """

    name = ""
    columns: Columns = {}

    def __init__(
        self,
        name: str,
        says: str,
        *sides: tuple[str, str],
        holds: Callable[[Row, str], bool] = lambda row, name: name in row,
        lacking: str | None = None,
    ) -> None:
        self.name, self._sides, self._holds, self._lacking = name, sides, holds, lacking
        self.__doc__ = says
        self.columns = {"answers": tuple(itertools.chain(*sides)), **_pairs.BESIDE}

    def _sides_of(self, row: Row) -> tuple[str, str] | None:
        both = (names for names in self._sides if all(self._holds(row, name) for name in names))
        return next(both, None)

    def _says(self, row: Row, name: str) -> bool:
        return self._holds(row, name) and says(row, name)

    def matches(self, row: Row) -> str | None:
        names = self._sides_of(row)
        return f"{names[0]} and {names[1]}" if names else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = two_of(row, self._sides, options.columns, holds=self._says) or self._sides_of(row)
        if names is None and self._lacking is not None:
            raise RowError("bad_column", self._lacking)
        chosen, rejected = names or self._sides[0]
        return [_pairs.pair(row, row.get(chosen), row.get(rejected), options)]


class _Preference(_NamedSides):
    """``chosen`` and ``rejected``: text, one turn or turns, with or without a prompt of any
    kind."""

    name = "preference"
    prompts = (*_pairs.PROMPTS, "instruction", "chosen")
    passes_on = ("chosen", "rejected", *_pairs.BESIDE["prompt"], *_turns.SYSTEM)

    def __init__(self) -> None:
        super().__init__(self.name, str(self.__doc__), ("chosen", "rejected"))

    def matches(self, row: Row) -> str | None:
        listed = rankings.LISTS.matches(row) is not None
        return None if listed or _is_dialogue(row) else super().matches(row)


def _talk(text: Any) -> _Turns | None:
    """The turns of a text that is a dialogue; None where it is none."""
    parsed = stop_text.parsed(text)
    return parsed[1].messages if parsed and parsed[0].name == DIALOGUE else None


def _is_dialogue(row: Row) -> bool:
    """Whether both sides are dialogues, or answers to a prompt that is one."""
    sides = [peek(row, name) for name in ("chosen", "rejected")]
    if not all(isinstance(side, str) for side in sides):
        return False
    asked = _talk(peek(row, "prompt"))
    return all(map(_talk, sides)) or bool(asked and not asked[-1].content)


def _dialogue(text: str, where: str) -> _Turns:
    turns = _talk(text)
    if turns is None or turns[0].role != "user":
        raise RowError("no_turns", f"{where} is no dialogue that begins with who asks ('Human:')")
    return turns


class _HhRlhf(_pairs.PairFormat):
    """``chosen`` and ``rejected`` as whole dialogues in one text, ``Human:`` and ``Assistant:``.

    Other words for the two speakers are read too (``User:``, ``AI:``), and dialogues with the part
    that they share in a prompt of its own. Turns are stripped at both ends.
    """

    name = "hh_rlhf"
    prompts = ()
    columns: Columns = {
        "answers": ("chosen", "rejected"),
        "prompt": ("prompt",),
        "system text": _turns.SYSTEM,
        **_turns.TOOLS,
        **_pairs.MARGIN,
    }

    def matches(self, row: Row) -> str | None:
        return "chosen and rejected as Human/Assistant dialogues" if _is_dialogue(row) else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        prompt = peek(row, "prompt")
        sides = []
        for name in ("chosen", "rejected"):
            text = _turns.text(row, name)
            if isinstance(prompt, str) and _talk(text) is None:
                text = row["prompt"].rstrip() + " " + text.lstrip()
            sides.append(_turns.joined(_turns.system(row), _dialogue(text, name)))
        return [_pairs.compared(row, _pairs.split(*sides), sides, options)]


class _PreferredOutput(_pairs.PairFormat):
    """``input.messages`` with ``preferred_output`` and ``non_preferred_output``, each one
    answer."""

    name = "preferred_output"
    prompts = ()
    _sides = ("preferred_output", "non_preferred_output")
    columns: Columns = {"prompt": ("input",), "answers": _sides, **_pairs.MARGIN}

    def matches(self, row: Row) -> str | None:
        asked = isinstance(peek(row, "input"), dict) and all(name in row for name in self._sides)
        return "input.messages, preferred_output and non_preferred_output" if asked else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        asked: Any = row.get("input")
        if not isinstance(asked, dict):
            raise RowError("bad_column", "column 'input' is not an object with messages")
        prompt = _turns.conversation(asked.get("messages"), "input.messages")
        sides = [_pairs.side(row.get(name), name) for name in self._sides]
        _pairs.require_answers(sides)
        return [_pairs.compared(row, prompt, sides, options, beside=asked)]


_WHOLE = ("messages", "conversations", "conversation")
_QUESTIONS = ("query", "question", "prompt", "input")
_ANSWERS = ("response", "answer", "output", "completion")
_REJECTED = ("rejected_response", "rejected_message", "rejected_messages")


def _is_whole(row: Row, name: str) -> bool:
    return _turns.are_turns(peek(row, name))


def _is_text(row: Row, name: str) -> bool:
    return says(row, name) and isinstance(peek(row, name), str)


def _chosen(row: Row, columns: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The columns with the conversation and with the chosen answer to it, where it has none.

    Raises:
        AskError: more than one column could be either.
    """
    whole = one_of(row, _WHOLE, columns, what="conversation", holds=_is_whole)
    if whole in columns:
        return whole, None
    answer = one_of(row, _ANSWERS, columns, what="chosen answer", holds=_is_text)
    if whole is None or answer is None or role_of(peek(row, whole)[-1]) != "assistant":
        return whole, answer
    last = peek(row, whole)[-1]
    if peek(row, answer) not in (last.get("content"), last.get("value")):
        ways = f"Say which with --ignore {answer} or --map {whole}={whole}"
        raise open_question(f"{whole} and {answer} could each be the chosen answer", ways)
    _ = row[answer]  # read: the conversation says it
    return whole, None


class _RejectedResponse(_pairs.PairFormat):
    """A conversation or an exchange whose answer is the chosen one, and a separate rejected answer.

    ``messages`` with ``rejected_response``, ``rejected_message`` or ``rejected_messages``;
    ``query`` and ``response`` with ``rejected_response``.
    """

    name = "rejected_response"
    columns: Columns = {
        "conversation": _WHOLE,
        "question": _QUESTIONS,
        "answer": _ANSWERS,
        "rejected": _REJECTED,
        **_turns.BESIDE,
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
            turns = _turns.dialogue(row, whole)
            turns += [Message("assistant", _turns.text(row, answer))] if answer else []
        else:
            name = one_of(row, _QUESTIONS, options.columns, what="question") or _QUESTIONS[0]
            asked, answered = _turns.text(row, name), _turns.text(row, str(answer))
            turns = _turns.exchange(row, asked, answered, options)
        side = _pairs.side(row[rejected], rejected)
        margin = _pairs.margin(row, options.columns)
        parts = _against(row, turns, side)
        return [Pair(*parts, margin=margin, tools=_turns.tools(row))]


def _against(row: Row, turns: _Turns, rejected: _Turns) -> tuple[_Turns, _Turns, _Turns]:
    """The prompt of a conversation, its last answer, and the rejected one.

    Raises:
        RowError: the conversation does not end in an answer.
    """
    if _pairs.is_whole(rejected):
        other = _turns.behind(row, rejected)
        return _pairs.split(turns, other), turns, other
    if turns[-1].role != "assistant":
        raise RowError("no_answer", "the conversation next to the rejected answer has no answer")
    at = len(turns) - 1
    while len(rejected) > 1 and at and turns[at - 1].role != "user":
        at -= 1  # several turns stand for all that follows the question
    return turns[:at], turns[at:], rejected


TABLE = (
    _Preference(),
    _NamedSides(
        "history_pair",
        "``response_chosen`` and ``response_rejected``, or "
        "``chosen_response``/``rejected_response``.",
        ("response_chosen", "response_rejected"),
        ("chosen_response", "rejected_response"),
    ),
    _NamedSides(
        "message_pair",
        "``chosen_messages`` and ``rejected_messages``: the turns of both sides.",
        ("chosen_messages", "rejected_messages"),
        ("messages_chosen", "messages_rejected"),
        ("chosen_conversations", "rejected_conversations"),
        ("chosen_conversation", "rejected_conversation"),
        holds=lambda row, name: _turns.are_turns(peek(row, name)),
        lacking="chosen_messages and rejected_messages are not both turns",
    ),
    _HhRlhf(),
    _PreferredOutput(),
    _RejectedResponse(),
)
