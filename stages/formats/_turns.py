"""What the dialects of conversation have in common: roles, contents, flags, values."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from stages import templated
from stages.contract import FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats._calls import calls_of, json_value
from stages.unread import FLAGS, NUMERIC

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "claude": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}
_CALLS = ("function_call", "tool_call")  # turns whose text is a call
_OWN = {"role", "from", "content", "value", *FLAGS}
_TEXT_PARTS = ("text", "input_text", "output_text", None)
SYSTEM = ("system", "system_prompt")
BEFORE = {"system text": SYSTEM, "history": ("history",)}  # what stands before a question
TOOLS = {"tools": ("tools", "functions")}
REASONING = ("reasoning_content", "reasoning", "thinking")


def text(row: Mapping[str, Any], key: str) -> str:
    """A column that must hold text.

    Raises:
        RowError: it is missing or holds something else.
    """
    value = row.get(key)
    if isinstance(value, str):
        return value
    what = "missing" if value is None else f"a {type(value).__name__}, not text"
    raise RowError("bad_column", f"column {key!r} is {what}")


def content(value: Any, where: str) -> str | None:
    """Text from a message's content: a string, null, or a list of text parts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = []
        for part in value:
            if isinstance(part, str):
                parts.append(part)
            elif isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
                parts.append(text(part, "text"))
            else:
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                raise RowError("unsupported_content", f"{where} holds a part of type {kind!r}")
        return "".join(parts)
    raise RowError("bad_column", f"{where} is a {type(value).__name__}, not text")


def _trained(turn: Mapping[str, Any], where: str) -> tuple[bool | None, float | None]:
    """Whether a turn is trained, and its weight where that is neither 0 nor 1.

    Raises:
        RowError: ``bad_weight``; also where one flag trains the turn and another does not.
    """
    given = {key: turn[key] for key in FLAGS if turn.get(key) is not None}
    weights = [_weight(key, flag, where) for key, flag in given.items()]
    if not weights:
        return None, None
    if len({weight > 0 for weight in weights}) > 1:
        said = " and ".join(f"{key} is {flag!r}" for key, flag in given.items())
        raise RowError("bad_weight", f"{where}: {said}, so whether it is trained is open")
    told = {weight for key, weight in zip(given, weights, strict=True) if key in NUMERIC}
    if len(told) > 1:
        raise RowError("bad_weight", f"{where}: {' and '.join(NUMERIC)} differ")
    weight = weights[0]  # a number, where there is one
    return weight > 0, None if weight in (0, 1) else weight


def _weight(key: str, flag: Any, where: str) -> float:
    """What a flag weighs a turn with; only a weight may be anything but 0 and 1."""
    if flag in (0, 1):  # True and False included
        return float(flag)
    if key not in NUMERIC:
        raise RowError("bad_weight", f"{where}: {key} is {flag!r}; it must be 0 or 1")
    weight = _as_stored(flag)
    if not (weight > 0 and math.isfinite(weight)):
        detail = f"{where}: {key} is {flag!r}; it must be a finite number from 0 up"
        raise RowError("bad_weight", detail)
    return weight


def _as_stored(value: Any) -> float:
    """A number as float32 has it; NaN for what is none, or beyond its range."""
    if not isinstance(value, int | float):
        return math.nan
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", value))
    except (OverflowError, struct.error):
        return math.nan
    return float(found)


def _fields(turn: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """What a turn says beside its text, in one spelling."""
    found = {key: value for key, value in turn.items() if key not in _OWN and value is not None}
    named = [found.pop(name) for name in ("tool_calls", "function_call") if name in found]
    calls = [one for one in named if one not in ([], "")]
    if len(calls) > 1:
        raise RowError("bad_tool_call", f"{where} has both tool_calls and function_call")
    if calls:
        found["tool_calls"] = calls_of(calls[0], f"{where} tool_calls")
    for name in REASONING[1:]:
        if isinstance(found.get(name), str) and REASONING[0] not in found:
            found[REASONING[0]] = found.pop(name)
    return found or None


def _require_one_spelling(turn: Mapping[str, Any], where: str) -> None:
    """A turn says its role once and its text once."""
    for one, other in (("role", "from"), ("content", "value")):
        said = [turn[name] for name in (one, other) if turn.get(name) is not None]
        if len(said) == 2 and said[0] != said[1]:
            raise RowError("bad_column", f"{where} has both {one} and {other}, and they differ")


def message(turn: Any, where: str) -> Message:
    """One turn in any dialect."""
    if not isinstance(turn, dict):
        raise RowError("bad_column", f"{where} is a {type(turn).__name__}, not an object")
    if len(turn) > 2:
        _require_one_spelling(turn, where)
    spelled = turn.get("role", turn.get("from"))
    role = ROLES.get(spelled.lower()) if isinstance(spelled, str) else None
    if role is None:
        raise RowError("unknown_role", f"{where} has the role {spelled!r}")
    body = turn.get("content", turn.get("value"))
    if isinstance(spelled, str) and spelled.lower() in _CALLS:
        beside = _fields(turn, where) or {}
        if "tool_calls" in beside:
            raise RowError("bad_tool_call", f"{where} has calls beside the one that it says")
        spoken: dict[str, Any] = {"tool_calls": calls_of(body, where), **beside}
        return Message(role, None, spoken, *_trained(turn, where))
    body = content(body, f"{where} content")
    if len(turn) == 2 and body is not None:
        return Message(role, body)
    fields = _fields(turn, where)
    if body is None and not (fields and fields.get("tool_calls")):
        raise RowError("empty_answer" if role == "assistant" else "bad_column", f"{where} is empty")
    return Message(role, body, fields, *_trained(turn, where))


def conversation(turns: Any, where: str) -> list[Message]:
    """A list of turns in any dialect."""
    if isinstance(turns, str):
        detail = f"{where} is a text; where it is the JSON of a list of turns, store the list"
        raise RowError("no_turns", detail)
    if not isinstance(turns, list) or not turns:
        raise RowError("no_turns", f"{where} holds no list of turns")
    return [message(turn, f"{where}[{i}]") for i, turn in enumerate(turns)]


def tools(row: Row) -> list[Any] | None:
    """The tools column: a list, or its JSON text.

    Raises:
        RowError: it is something else, or two columns name different tools.
    """
    if "tools" not in row and "functions" not in row:
        return None
    found = [value for name in ("tools", "functions") if (value := _tools(row, name))]
    if found[1:] and found[0] != found[1]:
        raise RowError("bad_tools", "tools and functions name different tools")
    return found[0] if found else None


def _tools(row: Row, name: str) -> list[Any]:
    value = row.get(name)
    value = json_value(value, name, "bad_tools") if value not in ("", None) else None
    if value not in (None, "") and not isinstance(value, list):
        raise RowError("bad_tools", f"{name} is a {type(value).__name__}, not a list")
    return value or []


def system(row: Row) -> list[Message]:
    """The turn of a system column, if the row has one that says something.

    Raises:
        RowError: it is not text, or two columns say different things.
    """
    said = {text(row, name): name for name in SYSTEM if row.get(name) not in (None, "")}
    if len(said) > 1:
        raise RowError("two_system_texts", f"columns {' and '.join(said.values())} differ")
    return [Message("system", each) for each in said]


def _history(value: Any) -> list[Message]:
    """Earlier exchanges: pairs of question and answer, or turns in any dialect."""
    if value in (None, "", []):
        return []
    if not isinstance(value, list):
        raise RowError("bad_column", f"column 'history' is a {type(value).__name__}, not a list")
    if all(isinstance(turn, dict) for turn in value):
        return conversation(value, "history")
    turns = []
    for i, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2:
            raise RowError("bad_column", f"history[{i}] is no pair of question and answer")
        for role, said in zip(("user", "assistant"), pair, strict=True):
            turns.append(Message(role, text({f"history[{i}]": said}, f"history[{i}]")))
    return turns


def before(row: Row) -> list[Message]:
    """What stands before the question: a system text and earlier exchanges."""
    if "history" in row or "system" in row or "system_prompt" in row:
        return system(row) + _history(row.get("history"))
    return []


def behind(row: Row, turns: list[Message]) -> list[Message]:
    """Turns behind the row's system text and its history, where they do not bring the same.

    Raises:
        RowError: both bring a system text, and they differ.
    """
    own, said = turns[0].role == "system", system(row)
    if own and said and said[0].content != turns[0].content:
        detail = "a system text in a column and another in the turns"
        raise RowError("two_system_texts", detail)
    ahead, rest, told = turns[:1] if own else said, turns[own:], _history(row.get("history"))
    brought = [(m.role, m.content) for m in rest[: len(told)]]
    if brought == [(m.role, m.content) for m in told]:
        told = []
    return [*ahead, *told, *rest]


def whole(row: Row, column: str) -> list[Message]:
    """A column of turns behind what the row says before them."""
    return behind(row, conversation(row.get(column), column))


def exchange(row: Row, prompt: str, answer: str, options: FormatOptions) -> list[Message]:
    """A prompt that is a text and the answer to it, behind what the row says before them.

    Raises:
        RowError: the prompt already carries a chat template and nobody allowed that.
    """
    found = templated.read(prompt)
    if found is None:
        return [*before(row), Message("user", prompt), Message("assistant", answer)]
    templated.require_allowed(found[0], "the prompt", options.already_templated)
    return joined(before(row), templated.answered(*found, answer))


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


def first_of(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of the names that the row has."""
    for name in names:
        if row.get(name) is not None:
            return name
    return None


def chosen_of(row: Row, names: tuple[str, ...], columns: Mapping[str, str]) -> str | None:
    """The column of one meaning: the one that ``--map`` named, else the first that is there."""
    named = [name for name in names if name in columns] if columns else None
    return first_of(row, named or names)


def is_turns(value: Any, role_key: str) -> bool:
    """Whether a value is a list of turns whose speaker is under ``role_key``."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and role_key in turn for turn in value)
    )
