"""Conversations in one column: a list of turns, or of questions with their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.contract import Columns, Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _messages, _turns, unusable
from stages.formats._asked import one_of, required
from stages.kinds import CONVERSATION
from stages.rows.column_names import peek
from stages.rows.speakers import role_named
from stages.rows.unread import FLAGS

_PROMPT = {"prompt": ("prompt",)}
_COLUMNS = ("conversations", "conversation")


class _Dialogue(Format, abstract=True):
    """A format of whole conversations, its answers included."""

    kinds = (CONVERSATION,)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        return unusable.unanswered(rows, self.columns["turns"])


class _OpenAI(_Dialogue):
    """``messages``: turns with role and content, optionally tools and per-message flags."""

    name = "openai"
    columns: Columns = {"turns": ("messages",), **_PROMPT, **_turns.WEIGHTS, **_turns.BESIDE}
    passes_on = ("messages", "prompt", *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        if _turns.are_spoken(peek(row, "messages")):
            return "messages as texts in turn"
        known = _turns.has_turns(row.get("messages"), "role")
        return "messages with role and content" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [Conversation(_turns.dialogue(row, "messages"), _turns.tools(row))]


class _ShareGPT(_Dialogue):
    """``conversations``: turns with from and value, in any spelling of the roles."""

    name = "sharegpt"
    columns: Columns = {
        "turns": (*_COLUMNS, "messages"),
        "untrained speaker": ("mask",),
        **_PROMPT,
        **_turns.WEIGHTS,
        **_turns.BESIDE,
    }
    passes_on = (*_COLUMNS, "messages", "prompt", *_turns.SYSTEM)

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or "rejected" in row:
            return None
        for column in _COLUMNS:
            for key, text in (("from", "value"), ("role", "content")):
                if _turns.has_turns(row.get(column), key):
                    return f"{column} with {key} and {text}"
        known = _turns.has_turns(row.get("messages"), "from")
        return "messages with from and value" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        column = _turns.first_of(row, self.columns["turns"]) or "conversations"
        turns = _turns.dialogue(row, column)
        masked = peek(row, "mask")
        role = role_named(masked)
        if role is not None:
            _ = row["mask"]  # read: it names whose turns are not trained
            turns = [_untrained(turn, masked) if turn.role == role else turn for turn in turns]
        return [Conversation(turns, _turns.tools(row))]


def _untrained(turn: Message, speaker: str) -> Message:
    """A turn of a speaker that the row leaves untrained.

    Raises:
        RowError: the turn itself says that it is trained.
    """
    if turn.trained:
        raise RowError("bad_weight", f"mask is {speaker}, and a turn of that speaker is trained")
    return replace(turn, trained=False)


class _Contents(Format):
    """``contents``: turns with a role and ``parts``, and their ``systemInstruction``."""

    name = "contents"
    kinds = (CONVERSATION,)
    columns: Columns = {"turns": ("contents",), **_turns.BESIDE}

    def matches(self, row: Row) -> str | None:
        if "completions" in row or not _turns.is_turns(row.get("contents"), "parts"):
            return None
        return "contents with role and parts"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [Conversation(_turns.whole(row, "contents"), _turns.tools(row))]


_LISTS = ("conversation", "conversations", "messages", "turns", "dialogue", "exchanges", "qa")
_QUESTIONS = ("human", "user", "input", "question", "query", "prompt", "instruction")
_ANSWERS = ("assistant", "output", "answer", "response", "gpt", "bot", "model", "completion")
_SYSTEMS = ("system", "system_prompt")


def _keys(one: Any, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if isinstance(peek(one, name), str)]


def _is_exchange(one: Any) -> bool:
    if not isinstance(one, dict) or "role" in one or "from" in one:
        return False
    return bool(_keys(one, _QUESTIONS)) and bool(_keys(one, _ANSWERS))


def _has_exchanges(row: Row, name: str) -> bool:
    value = peek(row, name)
    return isinstance(value, list) and any(map(_is_exchange, value))


def _listed(row: Row) -> str | None:
    """The column with exchanges."""
    return next((name for name in _LISTS if _has_exchanges(row, name)), None)


def _only(one: Row, what: str, names: tuple[str, ...], where: str) -> str:
    """The one text of an exchange that is its question, or its answer.

    Raises:
        RowError: there is none, or more than one.
    """
    keys = _keys(one, names)
    if len(keys) != 1:
        said = f"{' and '.join(keys)} could each be" if keys else "no text is"
        raise RowError("bad_column", f"{where}: {said} its {what}")
    return str(one[keys[0]])


def _exchanges(row: Row, column: str, options: FormatOptions) -> list[Message]:
    """The turns of a column of exchanges, behind what the row says before them.

    Raises:
        RowError: one is no exchange, has a system text in the middle, says that its answer
            goes on, or carries a chat template and nobody allowed that.
    """
    value = row[column]
    if not isinstance(value, list) or not value:
        raise RowError("no_turns", f"{column} is not a list of exchanges")
    turns: list[Message] = []
    for number, one in enumerate(value):
        where = f"{column}[{number}]"
        if not isinstance(one, dict):
            raise RowError("bad_column", f"{where} is a {type(one).__name__}, not an object")
        for name in _SYSTEMS:
            if one.get(name) not in (None, ""):
                if turns:
                    raise RowError("bad_column", f"{where} has a system text in the middle")
                turns.append(Message("system", _turns.text(one, name)))
        if one.get("need_eos_token") is False:
            detail = f"{where} has need_eos_token: false, so its answer goes on"
            raise RowError("unfinished_answer", detail)
        flags = _messages.trained({key: one.get(key) for key in FLAGS}, where)  # of its answer
        asked = _only(one, "question", _QUESTIONS, where)
        said = _turns.exchange({}, asked, _only(one, "answer", _ANSWERS, where), options)
        said[-1].trained, said[-1].weight = flags
        if len(said) > 2 and number:
            raise RowError("bad_column", f"{where}: its templated question has other turns")
        turns = _turns.joined(turns, said)
    return _turns.behind(row, turns)


class _ExchangeList(Format):
    """A list of exchanges: objects with a question and an answer each, ``{input, output}``.

    The first of them may bring the system text.
    """

    name = "exchange_list"
    kinds = (CONVERSATION,)
    columns: Columns = {"exchanges": _LISTS, **_turns.BESIDE}

    def matches(self, row: Row) -> str | None:
        name = _listed(row)
        if name is None or "chosen" in row or "rejected" in row:
            return None
        one = next(one for one in peek(row, name) if _is_exchange(one))
        return f"{name} with {_keys(one, _QUESTIONS)[0]} and {_keys(one, _ANSWERS)[0]}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = one_of(row, _LISTS, options.columns, what="conversation", holds=_has_exchanges)
        name = required(name, "there is no list of questions and answers", "no_turns")
        return [Conversation(_exchanges(row, name, options), _turns.tools(row))]


TABLE = (_OpenAI(), _ShareGPT(), _Contents(), _ExchangeList())
