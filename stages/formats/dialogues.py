"""Conversations in one column: a list of turns, or of questions with their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats import _messages, _turns, unusable
from stages.formats._fields import Asking, Field, columns_of, is_list, required
from stages.kinds import CONVERSATION
from stages.rows.column_names import FLAGS, peek
from stages.rows.shapes import is_text
from stages.rows.speakers import role_named


class _Dialogue(Asking, abstract=True):
    """A format of whole conversations, its answers included.

    Attributes:
        _shapes: columns that may hold the turns, a key that each turn has, and the words for it.
    """

    kinds = (CONVERSATION,)
    _shapes: Sequence[tuple[str, str, str]]

    def matches(self, row: Row) -> str | None:
        if not self._never.isdisjoint(row):
            return None
        there = ((c, key, words, row.get(c)) for c, key, words in self._shapes)
        each = ((c, key, words, _turns.turns_in(said) or said) for c, key, words, said in there)
        shapes = ((c, words) for c, key, words, said in each if _turns.is_turns(said, key))
        return next((f"{column} with {words}" for column, words in shapes), None)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        return unusable.unanswered(rows, self.columns["turns"])

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = self.columns["turns"]
        turns = _turns.dialogue(row, _turns.first_of(row, names) or names[0])
        _turns.add_reasoning(row, turns)
        return [Conversation(turns, _turns.tools(row))]


_OURS, _THEIRS = ("role", "role and content"), ("from", "from and value")


class _OpenAI(_Dialogue):
    """``messages``: turns with role and content, optionally tools and per-message flags."""

    name = "openai"
    _shapes = (("messages", *_OURS),)
    passes_on = ("messages", "prompt", *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        spoken = _turns.are_bare(peek(row, "messages"))
        return "messages as texts in turn" if spoken else super().matches(row)


class _Contents(_Dialogue):
    """``contents``: turns with a role and ``parts``, and their ``systemInstruction``."""

    name = "contents"
    _shapes = (("contents", "parts", "role and parts"),)
    _never = frozenset(("completions",))


class _ShareGPT(_Dialogue):
    """``conversations``: turns with from and value, in any spelling of the roles."""

    name = "sharegpt"
    _shapes = (
        *((c, *keys) for c in ("conversations", "conversation") for keys in (_THEIRS, _OURS)),
        ("messages", *_THEIRS),
    )
    _never = frozenset(("chosen", "rejected"))
    columns = columns_of("sharegpt")
    passes_on = (*columns["turns"], "prompt", *_turns.SYSTEM)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        examples = super().read(row, options)
        role = role_named(peek(row, "mask"))
        for one in examples if role is not None else ():
            masked = row["mask"]  # read: it names whose turns are not trained
            turns = one.messages if isinstance(one, Conversation) else []
            if any(turn.trained for turn in turns if turn.role == role):
                what = f"mask is {masked}, and a turn of that speaker is trained"
                raise RowError("bad_weight", what)
            turns[:] = [replace(o, trained=False) if o.role == role else o for o in turns]
        return examples


_QUESTION, _ANSWER = (Field(*each, is_text) for each in columns_of("exchange").items())


def _is_exchange(one: Any) -> bool:
    if not isinstance(one, dict) or "role" in one or "from" in one:
        return False
    return bool(_QUESTION.first(one) and _ANSWER.first(one))


_LISTS = columns_of("exchange_list")["exchanges"]
_EXCHANGES = Field("conversation", _LISTS, lambda v: is_list(v) and any(map(_is_exchange, v)))


def _exchanges(row: Row, column: str) -> list[Message]:
    """The turns of a column of exchanges, behind what the row says before them.

    Raises:
        RowError: one is no exchange, has a system text in the middle, or says that its answer
            goes on.
    """
    turns: list[Message] = []
    for number, one in enumerate(row[column]):
        where = f"{column}[{number}]"
        if not isinstance(one, dict):
            raise RowError("bad_column", f"{where} is a {type(one).__name__}, not an object")
        before = _turns.system(one)
        if before and turns:
            raise RowError("bad_column", f"{where} has a system text in the middle")
        if one.get("need_eos_token") is False:
            detail = f"{where} has need_eos_token: false, so its answer goes on"
            raise RowError("unfinished_answer", detail)
        flags = _messages.trained({key: one.get(key) for key in FLAGS}, where)  # of its answer
        asked, said = (f.needed(one, before=f"{column}[].") for f in (_QUESTION, _ANSWER))
        answer = Message("assistant", _turns.text(one, said), None, *flags)
        turns += [*before, Message("user", _turns.text(one, asked)), answer]
    return _turns.behind(row, turns)


class _ExchangeList(Asking):
    """A list of exchanges: objects with a question and an answer each, ``{input, output}``.

    The first of them may bring the system text.
    """

    name = "exchange_list"
    kinds = (CONVERSATION,)

    def matches(self, row: Row) -> str | None:
        name = _EXCHANGES.first(row)
        if name is None or "chosen" in row or "rejected" in row:
            return None
        one = next(one for one in peek(row, name) if _is_exchange(one))
        return f"{name} with {_QUESTION.first(one)} and {_ANSWER.first(one)}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _EXCHANGES.of(row, options.columns)
        name = required(name, "there is no list of questions and answers", "no_turns")
        return [Conversation(_exchanges(row, name), _turns.tools(row))]


TABLE = (_OpenAI(), _ShareGPT(), _Contents(), _ExchangeList())
