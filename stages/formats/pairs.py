"""Two answers whose columns say which is the chosen one."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Example, FormatOptions, Message, Refused, Row
from stages.errors import RowError, UndecidedError, counted
from stages.formats import _pairs, _turns
from stages.formats._fields import Field, columns_of, couples, is_any, listing, open_question
from stages.formats._messages import role_of
from stages.rows import stop_text
from stages.rows.column_names import peek
from stages.rows.dialects import DIALOGUE
from stages.rows.shapes import is_text

_Turns = list[Message]
_BOTH = ("chosen", "rejected")


def _answers(value: Any) -> list[Any]:
    return value if _turns.are_several(value) else [value]


class _AnswerLists(_pairs.PairFormat):
    """``chosen`` and ``rejected`` as lists of several answers each.

    ``answer_lists/first`` pairs the first of each, and counts the others as left out;
    ``answer_lists/all`` pairs every chosen answer with every rejected one.
    """

    name = "answer_lists"
    fans_out = True
    ways = ("all", "first")

    def matches(self, row: Row) -> str | None:
        sides = [dict.get(row, name) for name in _BOTH]
        several = None not in sides and any(map(_turns.are_several, sides))
        return "lists of answers in chosen and rejected" if several else None

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        several = sum(any(len(_answers(row.get(name))) > 1 for name in _BOTH) for row in rows)
        if not several:
            return "", "one answer in each"
        ways = "the first of each may be the pair, or all of one with all of the other"
        what = f"several chosen or rejected answers in {several:,} of {counted(len(rows), 'row')}"
        raise UndecidedError(f"{what}: {ways}", self.ways)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        chosen, rejected = (_answers(row.get(name)) for name in _BOTH)
        if chosen in ([], [[]]) or rejected in ([], [[]]):
            raise RowError("empty_answer", "a list of answers is empty")
        if not self._way and len(chosen) * len(rejected) > 1:
            detail = f"{len(chosen)} chosen and {len(rejected)} rejected answers; see --format "
            raise RowError("several_answers", detail + " or ".join(self.ways))
        if self._way == "first":
            both = zip(_BOTH, (chosen, rejected), strict=True)
            more = ((side, at, len(some)) for side, some in both for at in range(2, len(some) + 1))
            left_out = [Refused("not_the_first", f"{s} answer {at} of {of}") for s, at, of in more]
            return [_pairs.pair(row, chosen[0], rejected[0], options), *left_out]
        _pairs.require_one_margin(row, len(chosen) * len(rejected), options.columns)
        pairs = itertools.product(chosen, rejected)
        return [_pairs.pair(row, better, worse, options) for better, worse in pairs]


_LISTS = _AnswerLists()


_SIDES = Field("answer", couples(columns_of("preference")["answers"]), is_any)


class _Preference(_pairs.PairFormat):
    """``chosen`` and ``rejected``, or other columns named after the two sides: text, one turn or
    turns, with or without a prompt of any kind."""

    name = "preference"
    _needs = (_SIDES,)
    columns = columns_of("preference")
    prompts = (*_pairs.PROMPTS, "instruction", "chosen")
    passes_on = (*_BOTH, *columns["prompt"], *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        listed = _LISTS.matches(row) is not None
        return None if listed or _is_dialogue(row) else super().matches(row)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = _SIDES.same(row, _SIDES.both(row, options.columns), options.columns)
        if not names:
            raise RowError("no_turns", f"there are no two answers in {listing(_BOTH)}")
        chosen, rejected = (row[name] for name in names)
        if "prefix" in options.columns:
            before = _turns.text(row, "prefix") if row["prefix"] is not None else ""
            chosen, rejected = (_behind(before, _turns.text(row, name)) for name in names)
        return [_pairs.pair(row, chosen, rejected, options)]


def _behind(before: str, text: str) -> str:
    """An answer behind what it goes on from, with a blank where neither has one there; scripts
    without blanks need none."""
    both = before[-1:], text[:1]
    return before + " " * all(one.strip() and one.isascii() for one in both) + text


def _talk(text: Any) -> _Turns | None:
    """The turns of a text that is a dialogue; None where it is none."""
    parsed = stop_text.read(text)
    return parsed[1].messages if parsed and parsed[0].name == DIALOGUE else None


def _is_dialogue(row: Row) -> bool:
    """Whether both sides are dialogues, or answers to a prompt that is one."""
    sides = [peek(row, name) for name in _BOTH]
    if not all(isinstance(side, str) for side in sides):
        return False
    asked = _talk(peek(row, "prompt"))
    return all(map(_talk, sides)) or bool(asked and not asked[-1].content)


class _HhRlhf(_pairs.PairFormat):
    """``chosen`` and ``rejected`` as whole dialogues in one text, ``Human:`` and ``Assistant:``.

    Other words for the two speakers are read too (``User:``, ``AI:``), and dialogues with the part
    that they share in a prompt of its own. Turns are stripped at both ends.
    """

    name = "hh_rlhf"
    prompts = ()

    def matches(self, row: Row) -> str | None:
        return "chosen and rejected as Human/Assistant dialogues" if _is_dialogue(row) else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        prompt = peek(row, "prompt")
        sides = []
        for name in _BOTH:
            text = _turns.text(row, name)
            if isinstance(prompt, str) and _talk(text) is None:
                text = row["prompt"].rstrip() + " " + text.lstrip()
            turns = _talk(text)
            if turns is None or turns[0].role != "user":
                what = f"{name} is no dialogue that begins with who asks ('Human:')"
                raise RowError("no_turns", what)
            sides.append(_turns.joined(_turns.system(row), turns))
        return [_pairs.compared(row, _pairs.split(*sides), sides, options)]


class _PreferredOutput(_pairs.PairFormat):
    """``input.messages`` with ``preferred_output`` and ``non_preferred_output``, each one
    answer."""

    name = "preferred_output"
    prompts = ()
    columns = columns_of("preferred_output")
    _sides = columns["answers"]
    _needs = (
        Field("", columns["prompt"], lambda value: isinstance(value, dict)),
        Field("", [_sides], is_any),
    )
    _words = "input.messages, {1} and {2}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        asked: Any = row.get("input")
        if not isinstance(asked, dict):
            raise RowError("bad_column", "column 'input' is not an object with messages")
        prompt = _turns.conversation(asked.get("messages"), "input.messages")
        sides = [_pairs.side(row.get(name), name) for name in self._sides]
        _pairs.require_answers(sides)
        return [_pairs.compared(row, prompt, sides, options, beside=asked)]


_ANSWERED = columns_of("rejected_response")
_WHOLE = Field("conversation", _ANSWERED["conversation"], _turns.are_turns)
_QUESTION = Field("question", _ANSWERED["question"])
_ANSWER = Field("chosen answer", _ANSWERED["answer"], is_text)
_OTHER = Field("rejected answer", _ANSWERED["rejected"])


def _chosen(row: Row, columns: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The columns with the conversation and with the chosen answer to it, where it has none.

    Raises:
        AskError: more than one column could be either.
    """
    whole = _WHOLE.of(row, columns)
    if whole in columns:
        return whole, None
    answer = _ANSWER.of(row, columns)
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
    columns = _ANSWERED
    prompts = columns["question"]

    def matches(self, row: Row) -> str | None:
        rejected, whole = _OTHER.first(row), _WHOLE.first(row)
        if rejected is None or any(name.startswith("chosen") for name in row):
            return None
        chosen = whole or (_QUESTION.first(row) and _ANSWER.first(row))
        return f"{chosen} and {rejected}" if chosen else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        rejected = _OTHER.needed(row, options.columns)
        whole, answer = _chosen(row, options.columns)
        if whole is not None:
            turns = _turns.dialogue(row, whole)
            turns += [Message("assistant", _turns.text(row, answer))] if answer else []
        else:
            answer = _ANSWER.needed(row, options.columns)
            turns = _turns.answered(row, _QUESTION.needed(row, options.columns), answer)
        side = _pairs.side(row[rejected], rejected)
        return [_pairs.compared(row, *_against(row, turns, side), options)]


def _against(row: Row, turns: _Turns, rejected: _Turns) -> tuple[_Turns, list[_Turns]]:
    """The prompt of a conversation, and its last answer with the rejected one.

    Raises:
        RowError: the conversation does not end in an answer.
    """
    if _pairs.is_whole(rejected):
        other = _turns.behind(row, rejected)
        return _pairs.split(turns, other), [turns, other]
    if turns[-1].role != "assistant":
        raise RowError("no_answer", "the conversation next to the rejected answer has no answer")
    at = len(turns) - 1
    while len(rejected) > 1 and at and turns[at - 1].role != "user":
        at -= 1  # several turns stand for all that follows the question
    return turns[:at], [turns[at:], rejected]


TABLE = (_Preference(), _HhRlhf(), _PreferredOutput(), _RejectedResponse(), _LISTS)
