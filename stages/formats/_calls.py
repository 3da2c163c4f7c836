"""Tool calls in every spelling, and values that may be written as JSON text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stages.contract import Message
from stages.errors import RowError
from stages.files import strict_json
from stages.formats._roles import speaker

CALLS = ("function_call", "tool_call")  # roles of turns whose text is a call


def json_value(value: Any, where: str, code: str) -> Any:
    """A value that may be written as JSON text; the text is read as strictly as a row.

    Raises:
        RowError: it is text and not JSON, or ambiguous.
    """
    if not isinstance(value, str):
        return value
    try:
        holder = strict_json.parse(f'{{"value":{value}}}'.encode())
    except RowError as error:
        raise RowError(code, f"{where} is not JSON: {error.detail}") from error
    if len(holder) != 1:  # the text closed the object that it was put in: 1, "more": 2
        raise RowError(code, f"{where} is not one JSON value")
    return holder["value"]


def _function(call: Any, where: str) -> dict[str, Any]:
    """A function's name and arguments; arguments written as JSON text become the object.

    Raises:
        RowError: ``bad_tool_call``: there is no name, or the arguments are not an object.
    """
    if not isinstance(call, dict) or "name" not in call:
        raise RowError("bad_tool_call", f"{where} has no name")
    arguments = call.get("arguments")
    if isinstance(arguments, str) and not arguments.strip():
        raise RowError("bad_tool_call", f"{where} arguments are empty; write {{}} for none")
    arguments = json_value(arguments, f"{where} arguments", "bad_tool_call")
    if not isinstance(arguments, dict):
        what = "missing" if arguments is None else f"a {type(arguments).__name__}, not an object"
        raise RowError("bad_tool_call", f"{where} arguments are {what}")
    return {**call, "arguments": arguments}


def _call(value: Any, where: str) -> dict[str, Any]:
    """A tool call in either spelling: the function inside, or by itself."""
    if isinstance(value, dict) and "function" in value:
        return {**value, "function": _function(value["function"], where)}
    return {"type": "function", "function": _function(value, where)}


def calls_of(value: Any, where: str) -> list[dict[str, Any]]:
    """Tool calls as a list, one object, or the JSON text of either."""
    calls = json_value(value, where, "bad_tool_call")
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list) or not calls:
        raise RowError("bad_tool_call", f"{where} has no calls")
    return [_call(call, where) for call in calls]


def is_call(turn: Any) -> bool:
    """Whether a turn is a call by its role alone (``tool_call``)."""
    said = speaker(turn) if isinstance(turn, dict) else None
    return isinstance(said, str) and said.lower() in CALLS


def together(first: Message, second: Message, where: str) -> Message:
    """Two turns of calls as one.

    Raises:
        RowError: they say different things beside their calls, so that one turn cannot say both.
    """
    said = [dict(turn.fields or {}) for turn in (first, second)]
    calls = [call for fields in said for call in fields.pop("tool_calls")]
    flags = [(turn.trained, turn.weight) for turn in (first, second)]
    if said[0] != said[1] or flags[0] != flags[1]:
        detail = f"{where} follows another turn of tool calls, and their other fields differ"
        raise RowError("bad_tool_call", f"{detail}, so they cannot be joined")
    return replace(first, fields={"tool_calls": calls, **said[0]})
