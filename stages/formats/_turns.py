"""Columns that hold turns, or stand before them: system texts, histories, prompts, tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Message, Row
from stages.errors import RowError
from stages.formats import _messages, _parts
from stages.formats._fields import NOTHING, columns_of, keeping_one, listing, meant, open_question
from stages.formats._messages import kind_of
from stages.formats._parts import json_value
from stages.formats._parts import tools as tools
from stages.rows import column_names, shapes, signals
from stages.rows.speakers import CALL, marked, meaning
from stages.rows.unread import ignore

SYSTEM = columns_of("system")["system text"]
_REASONING, _FIELD = "message_thinking", "reasoning_content"
# Columns that may be lists with a value for each turn, and the key of a turn that takes it.
_OF_TURNS = {"turn_weights": ("weight", "bad_weight"), _REASONING: (_FIELD, "bad_column")}
_AHEAD = frozenset((*SYSTEM, "history"))


def text(row: Mapping[str, Any], key: str) -> str:
    """A column that must hold text.

    Raises:
        RowError: it is missing or holds something else.
    """
    value = row.get(key)
    if isinstance(value, str):
        return value
    what = "missing" if key not in row else f"{kind_of(value)}, not text"
    raise RowError("bad_column", f"column {key!r} is {what}")


def conversation(turns: Any, where: str, *, one: bool = False) -> list[Message]:
    """A list of turns in any dialect; ``one``: of one answer, so that texts do not take turns."""
    if isinstance(turns, str):
        turns = turns_in(turns)
        if turns is None:
            raise RowError("no_turns", f"{where} is a text, and not the JSON of a list of turns")
    if not isinstance(turns, list) or not turns:
        what = "null or missing" if turns is None else "empty" if turns == [] else kind_of(turns)
        raise RowError("no_turns", f"{where} is {what}, and no list of turns")
    if are_spoken(turns):
        if one:
            raise RowError("bad_column", f"{where} is a list of texts, and not one answer")
        said = [text for text in turns if text]
        return [Message(("user", "assistant")[i % 2], text) for i, text in enumerate(said)]
    messages: list[Message] = []
    called = False
    for i, turn in enumerate(turns):
        simple = _messages.simple(turn)
        said = [simple] if simple else _messages.read(turn, f"{where}[{i}]")
        calls = not simple and meaning(_messages.speaker(turn)) == CALL
        if called and calls:  # calls one after another are made at once, in one turn
            messages[-1] = _messages.together(messages[-1], said[0], f"{where}[{i}]")
        else:
            messages += said
        called = calls
    return messages


def _system_text(value: Any, name: str) -> str:
    """A system text as it is, or as a list of text parts, or as an object with ``parts``."""
    if isinstance(value, dict):
        _ = value.get("role")  # of a system text there is one only
        value = value.get("parts")
    if isinstance(value, list):
        parts = _parts.read(value, name)
        if parts.has_more:
            raise RowError("bad_column", f"column {name!r} has more than text")
        value = parts.text
    return text({name: value}, name)


def system(row: Row) -> list[Message]:
    """The turn of a system column, if the row has one that says something.

    Raises:
        RowError: it is not text, or two columns say different things.
    """
    names = [name for name in SYSTEM if row.get(name) not in (None, "")]
    said = {_system_text(row[name], name): name for name in names}
    if len(said) > 1:
        there = [*said.values()]
        ways = keeping_one([(name,) for name in there], there)
        what = f"columns {listing(there)} differ"
        raise open_question(what, f"Say which with {ways}", "two_system_texts")
    return [Message("system", each) for each in said]


def two_systems(row: Row, what: str) -> RowError:
    """The error of a system text in a column and another one in turns."""
    names = [name for name in SYSTEM if column_names.peek(row, name) not in (None, "")]
    if not names:
        return RowError("two_system_texts", what)
    how = f"To leave out that of the column, add {' '.join(map(ignore, names))}"
    return open_question(what, how, "two_system_texts")


def _history(value: Any) -> list[Message]:
    """Earlier exchanges: pairs of question and answer, or turns in any dialect."""
    if value in (None, "", []):
        return []
    if not isinstance(value, list):
        raise RowError("bad_column", f"column 'history' is {kind_of(value)}, not a list")
    if all(isinstance(turn, dict) for turn in value):
        return conversation(value, "history")
    turns = []
    for i, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2:
            raise RowError("bad_column", f"history[{i}] is not a pair of question and answer")
        for role, said in zip(("user", "assistant"), pair, strict=True):
            turns.append(Message(role, text({f"history[{i}]": said}, f"history[{i}]")))
    return turns


def before(row: Row) -> list[Message]:
    """What stands before the question: a system text and earlier exchanges."""
    if row.keys().isdisjoint(_AHEAD):
        return []
    return system(row) + _history(row.get("history"))


def behind(row: Row, turns: list[Message]) -> list[Message]:
    """Turns behind the row's system text and its history, where they do not bring the same.

    Raises:
        RowError: both bring a system text, and they differ.
    """
    if row.keys().isdisjoint(_AHEAD):
        return turns
    own, said = turns[0].role == "system", system(row)
    if own and said and said[0].content != turns[0].content:
        raise two_systems(row, "a system text in a column and another in the turns")
    ahead, rest, told = turns[:1] if own else said, turns[own:], _history(row.get("history"))
    brought = [(m.role, m.content) for m in rest[: len(told)]]
    if brought == [(m.role, m.content) for m in told]:
        told = []  # the turns repeat the history
    return [*ahead, *told, *rest]


def whole(row: Row, column: str) -> list[Message]:
    """A column of turns behind what the row says before them."""
    turns: Any = row.get(column)
    for name, (key, code) in _OF_TURNS.items():
        if not isinstance(column_names.peek(row, name), list):
            continue
        turns, values = turns_in(turns) or turns, row[name]
        if not are_turns(turns) or len(turns) != len(values):
            raise RowError(code, f"{name} is not as long as the turns")
        both = [*zip(turns, values, strict=True)]
        if any(said is not None and turn.get(key) not in (None, said) for turn, said in both):
            raise RowError(code, f"{name} and the {key} of a turn differ")
        turns = [turn if said is None else {**turn, key: said} for turn, said in both]
    return behind(row, conversation(turns, column))


def require_prompt(row: Row, turns: list[Message]) -> None:
    """A prompt column beside a whole conversation must be a part of that conversation.

    Args:
        turns: of the conversation; for a pair, those that both sides share.

    Raises:
        RowError: ``prompt_differs``: it says something else.
    """
    named = column_names.peek(row, "prompt")
    if not named or not turns:
        return
    if isinstance(named, str):
        wanted = [Message("user", named)]
    elif are_turns(named):
        wanted = conversation(named, "prompt")
    else:  # neither text nor turns: nothing that a conversation could hold
        return
    said = {(turn.content or "").strip() for turn in turns}
    if any((turn.content or "").strip() not in said for turn in wanted):
        detail = "the prompt column says something that is not in the conversation"
        raise RowError("prompt_differs", f"{detail}; --ignore prompt leaves the column out")
    _ = row["prompt"]  # read: the conversation says it


def dialogue(row: Row, column: str) -> list[Message]:
    """A column that holds a whole conversation, its last answer included.

    Raises:
        RowError: a prompt column says something else.
    """
    turns = whole(row, column)
    require_prompt(row, turns)
    return turns


def asked(row: Row, column: str) -> list[Message]:
    """The turns of a column with a question, text or turns, behind what the row says before."""
    if isinstance(row.get(column), list):
        return whole(row, column)
    return [*before(row), Message("user", text(row, column))]


def answered(row: Row, question: str, answer: str) -> list[Message]:
    """The turns of a column with a question and of one with the answer, each text or turns; calls
    of tools may be the answer."""
    asks, said = asked(row, question), row.get(answer)
    said = {**said} if isinstance(said, dict) else said  # whose keys are the turn's
    one = isinstance(said, dict) and are_replies(said)
    if called := one or are_calls(said):
        said = [said if one else {"role": "assistant", "tool_calls": said}]
    if called or (isinstance(said, list) and isinstance(row[question], list)):
        return asks + conversation(said, answer, one=True)
    return [*asks, Message("assistant", text(row, answer))]


def add_reasoning(row: Row, turns: list[Message]) -> None:
    """Give the last turn the reasoning that stands in a column of its own.

    Raises:
        RowError: it is no answer, or has some.
    """
    told = column_names.peek(row, _REASONING)
    if told in (None, "") or (isinstance(told, list) and len(told) > 1):  # one for each turn
        return
    said, last = text(row, _REASONING), turns[-1]
    if last.role == "assistant" and not (last.content or "").strip() and not last.fields:
        raise RowError("empty_answer", "the answer says nothing, and only its reasoning does")
    own = (last.fields or {}).get(_FIELD)
    if last.role != "assistant" or own:
        what = "has reasoning of its own" if last.role == "assistant" else "is no answer"
        raise RowError("bad_column", f"the last turn {what}, beside that of a column")
    last.fields = {**(last.fields or {}), _FIELD: said}


def joined(ahead: list[Message], turns: list[Message]) -> list[Message]:
    """Turns that were inside a templated text, behind what other columns say.

    Raises:
        RowError: both bring a system text, and they differ.
    """
    if not ahead or ahead[0].role != "system" or turns[0].role != "system":
        return ahead + turns
    if len(ahead) > 1 or ahead[0] != turns[0]:
        detail = "a system text in a column and another inside the templated prompt"
        raise RowError("two_system_texts", detail)
    return turns


def first_of(row: Row, names: Sequence[str], columns: Mapping[str, str] = NOTHING) -> str | None:
    """The column of one meaning: the one that ``--map`` named, else the first that is there."""
    return next((name for name in meant(names, columns) if row.get(name) is not None), None)


def turns_in(value: Any) -> list[Any] | None:
    """The turns of a text that is the JSON of a list of turns; None for any other value."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        turns = json_value(value, "", "no_turns")
    except RowError:
        return None
    return turns if are_turns(turns) else None


def are_spoken(value: Any) -> bool:
    """Whether a value is a list of texts that a user and an assistant say in turn; a table has
    nothing in the places behind the last one."""
    if not isinstance(value, list) or not all(isinstance(one, str | None) for one in value):
        return False
    said = [bool(one) for one in value]
    return sum(said) > 1 and all(said[: sum(said)])


def are_bare(value: Any) -> bool:
    """The same, where nothing before a text says who speaks."""
    return are_spoken(value) and marked(value) is None


def are_several(value: Any) -> bool:
    """Whether a value is a list of answers, each a text or turns; one answer's turns are none."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(one, str) for one in value) or all(map(are_turns, value))


def are_turns(value: Any) -> bool:
    """Whether a value is a list of turns in either spelling."""
    return is_turns(value, "role") or is_turns(value, "from")


def are_calls(value: Any) -> bool:
    """Whether a value is a list of calls of tools, and not of turns."""
    return signals.are_calls(value) and all(_messages.speaker(one) is None for one in value)


def are_said(value: Any, calls: bool = False) -> bool:
    """Whether a value is a text, a list of turns in either spelling, or of ``calls`` of tools."""
    return isinstance(value, str) or are_turns(value) or (calls and are_calls(value))


def is_turns(value: Any, role_key: str) -> bool:
    """Whether a value is a list of turns whose speaker is under ``role_key``."""
    several = isinstance(value, list) and bool(value)
    return several and all(isinstance(turn, dict) and role_key in turn for turn in value)


# Values that are turns, or answers, by what is in them.


def ends_with(value: Any, asks: bool) -> bool:
    """Whether a value is turns that end with a question, or with an answer."""
    turns = value if isinstance(value, list) else turns_in(value)
    if not turns or not are_turns(turns):
        return False
    roles = [_messages.role_of(turn) for turn in turns]
    return (roles[-1] == "user" and "assistant" not in roles[:1]) if asks else "assistant" in roles


def are_talks(value: Any, asks: bool) -> bool:
    """Whether a value is turns of a user too, and not answers of which each names its model."""
    return ends_with(value, asks) and "user" in map(_messages.role_of, turns_in(value) or value)


def are_replies(value: Any) -> bool:
    """Whether a value is calls of tools, or turns of an assistant alone, or one such turn."""
    turns = [value] if isinstance(value, dict) else value
    alone = are_turns(turns) and {*map(_messages.role_of, turns)} == {"assistant"}
    return alone or are_calls(value)


def is_said(value: Any) -> bool:
    """Whether a value can be an answer: a text, a turn, or turns."""
    turns = [value] if isinstance(value, dict) else value
    return isinstance(value, str) or are_turns(turns)


def are_answers(value: Any) -> bool:
    """Whether a value is a list of several texts or objects, and not of turns."""
    if not isinstance(value, list) or len(value) < 2 or are_turns(value):
        return False
    return shapes.are_texts(value) or all(isinstance(one, dict) for one in value)
