"""What the dialects of conversation have in common: roles, contents, flags, values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from stages.contract import Message, Row
from stages.errors import RowError

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
    "bot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
}
_FLAGS = ("weight", "train", "loss")
_OWN = {"role", "from", "content", "value", *_FLAGS}


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
            elif isinstance(part, dict) and part.get("type") in ("text", None):
                parts.append(text(part, "text"))
            else:
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                raise RowError("unsupported_content", f"{where} holds a part of type {kind!r}")
        return "".join(parts)
    raise RowError("bad_column", f"{where} is a {type(value).__name__}, not text")


def _trained(turn: Mapping[str, Any], where: str) -> bool | None:
    for key in _FLAGS:
        flag = turn.get(key)
        if flag is None:
            continue
        if flag in (0, 1):  # True and False included
            return bool(flag)
        raise RowError("bad_weight", f"{where}: {key} is {flag!r}; it must be 0 or 1")
    return None


def _call(value: Any, where: str) -> dict[str, Any]:
    """A tool call written as a turn of its own."""
    try:
        call = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise RowError("bad_tool_call", f"{where} is not JSON: {error}") from error
    if not isinstance(call, dict) or "name" not in call:
        raise RowError("bad_tool_call", f"{where} has no name")
    return {"type": "function", "function": call}


def message(turn: Any, where: str) -> Message:
    """One turn in any dialect."""
    if not isinstance(turn, dict):
        raise RowError("bad_column", f"{where} is a {type(turn).__name__}, not an object")
    spelled = turn.get("role", turn.get("from"))
    role = ROLES.get(spelled.lower()) if isinstance(spelled, str) else None
    if role is None:
        raise RowError("unknown_role", f"{where} has the role {spelled!r}")
    body = turn.get("content", turn.get("value"))
    if spelled == "function_call":
        fields: dict[str, Any] = {"tool_calls": [_call(body, where)]}
        return Message(role, None, fields, _trained(turn, where))
    others = {key: value for key, value in turn.items() if key not in _OWN and value is not None}
    body = content(body, f"{where} content")
    if body is None and not others.get("tool_calls"):
        raise RowError("empty_answer" if role == "assistant" else "bad_column", f"{where} is empty")
    return Message(role, body, others or None, _trained(turn, where) if len(turn) > 2 else None)


def conversation(turns: Any, where: str) -> list[Message]:
    """A list of turns in any dialect."""
    if not isinstance(turns, list) or not turns:
        raise RowError("no_turns", f"{where} holds no list of turns")
    return [message(turn, f"{where}[{i}]") for i, turn in enumerate(turns)]


def tools(row: Row) -> list[Any] | None:
    """The tools column: a list, or its JSON text."""
    value = row.get("tools", row.get("functions"))
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise RowError("bad_tools", f"tools is not JSON: {error}") from error
    if value in (None, "", []):
        return None
    if not isinstance(value, list):
        raise RowError("bad_tools", f"tools is a {type(value).__name__}, not a list")
    return value


def first_of(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of the names that the row has."""
    for name in names:
        if row.get(name) is not None:
            return name
    return None


def is_turns(value: Any, role_key: str) -> bool:
    """Whether a value is a list of turns whose speaker is under ``role_key``."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and role_key in turn for turn in value)
    )
