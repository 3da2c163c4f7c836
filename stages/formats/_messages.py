"""One message in any dialect: who says it, what, and whether it is trained with which weight."""

import json
import shlex
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stages.chat_template import reasoning
from stages.contract import Message, Row
from stages.errors import RowError
from stages.formats import _parts
from stages.formats._parts import calls_of
from stages.rows.column_names import FLAGS, NUMERIC, peek
from stages.rows.speakers import CALL, ROLES, TOOL, USER, meaning, role_named

MAX_FLOAT32 = 3.4028235e38  # margins and weights are stored as float32
_OWN = {"role", "from", "content", "value", "parts", *FLAGS}
_BODIES = ("content", "value", "parts")
_TEXTS = ("text", "message", "utterance", "system_prompt")  # where there is none of these
_SPOKEN = ("role", "from", *_BODIES)
_REASONING = ("reasoning_content", "reasoning", "thinking")
_SAME = {"tool_calls": ("function_call",), "reasoning_content": _REASONING}


def speaker(turn: Mapping[str, Any]) -> Any:
    """Who says a turn, as the turn spells it; a table may hold both keys and fill one."""
    said = turn.get("role")
    return turn.get("from") if said is None else said


def role_of(turn: Mapping[str, Any]) -> str | None:
    """Who says a turn, in one spelling; None for nobody that is known."""
    return role_named(speaker(turn))


def trained(turn: Mapping[str, Any], where: str) -> tuple[bool | None, float | None]:
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
        raise RowError("bad_weight", f"{where}: {said}, so it is not clear whether it is trained")
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
    weight = 0.0
    if isinstance(flag, int | float) and abs(flag) <= MAX_FLOAT32:
        (weight,) = struct.unpack("<f", struct.pack("<f", flag))  # as it is stored
    if weight <= 0:
        detail = f"{where}: {key} is {flag!r}; it must be a finite number from 0 up"
        raise RowError("bad_weight", detail)
    return weight


def kind_of(value: Any) -> str:
    """What a value is; objects inside a row are watched, and of a class of their own."""
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def _fields(turn: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """What a turn says beside its text, in one spelling."""
    fields = {key: value for key, value in turn.items() if key not in _OWN and value is not None}
    named = [fields.pop(name) for name in ("tool_calls", "function_call") if name in fields]
    calls = [one for one in named if one not in ([], "")]
    if len(calls) > 1:
        raise RowError("bad_tool_call", f"{where} has both tool_calls and function_call")
    if calls:
        fields["tool_calls"] = calls_of(calls[0], f"{where} tool_calls")
    for name in _REASONING[1:]:
        if isinstance(fields.get(name), str) and _REASONING[0] not in fields:
            fields[_REASONING[0]] = fields.pop(name)
    return fields or None


def _require_one_spelling(turn: Row, where: str) -> None:
    """A turn says its role once and its text once."""
    for names in (("role", "from"), _BODIES):
        said = [name for name in names if peek(turn, name) not in (None, [])]
        if any(turn[name] != turn[said[0]] for name in said[1:]):
            both = " and ".join(said)
            raise RowError("bad_column", f"{where} has both {both}, and they differ")


def _of_parts(turn: dict[str, Any], body: list[Any], where: str) -> list[dict[str, Any]]:
    """A turn whose content is a list of typed parts as turns whose content is text.

    The results of tools become turns of their own, in front of what the user says.
    """
    parts = _parts.read(body, f"{where} content")
    plain = {key: value for key, value in turn.items() if key not in _BODIES}
    role = role_of(turn)
    if role != "assistant" and (parts.calls or parts.reasoning):
        detail = f"{where}: only an assistant turn has calls or reasoning"
        raise RowError("unsupported_content", detail)
    if role == "assistant" and parts.results:
        raise RowError("unsupported_content", f"{where}: a tool's result in an assistant turn")
    said = {"tool_calls": parts.calls, "reasoning_content": parts.reasoning}
    for key, value in said.items():
        if value and any(plain.get(name) for name in (key, *_SAME[key])):
            detail = f"{where} has its {key} both inside its content and next to it"
            raise RowError("bad_column", detail)
        if value:
            plain[key] = value
    plain.update(parts.left)
    if not parts.results or parts.text is not None:
        return [*parts.results, {**plain, "content": parts.text}]
    beside = {key: value for key, value in plain.items() if key not in ("role", "from")}
    return [*parts.results[:-1], {**parts.results[-1], **beside}]


def simple(turn: Any) -> Message | None:
    """A turn of a role and a text, as most are; None where it is anything else."""
    if type(turn) is not dict or len(turn) != 2:
        return None
    spelled, said = turn.get("role"), turn.get("content")
    if type(said) is not str:
        spelled, said = turn.get("from"), turn.get("value")
    if type(said) is not str:
        return None
    role = meaning(spelled)
    return None if role is None or role == CALL else Message(role, said)


def read(turn: Any, where: str) -> list[Message]:
    """One turn in any dialect; the results of tools that it holds are turns of their own."""
    if isinstance(turn, dict):
        _require_one_spelling(turn, where)
        body = next((turn[name] for name in _BODIES if turn.get(name) is not None), None)
        if isinstance(body, list):
            return [_message(one, where) for one in _of_parts(turn, body, where)]
    return [_message(turn, where)]


def message(turn: Any, where: str) -> Message:
    """One turn in any dialect."""
    messages = read(turn, where)
    if len(messages) > 1:
        raise RowError("bad_column", f"{where} has more than one turn")
    return messages[0]


def _spelled(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn without a body under a usual name, with the text that it has under another; an object
    with lists is a node of a tree."""
    if not turn.keys().isdisjoint(_BODIES) or list in map(type, turn.values()):
        return turn
    name = next((name for name in _TEXTS if turn.get(name) not in (None, "")), None)
    if name is None:
        return turn
    return {**{key: value for key, value in turn.items() if key != name}, "content": turn[name]}


def _message(turn: Any, where: str) -> Message:
    if not isinstance(turn, dict):
        raise RowError("bad_column", f"{where} is {kind_of(turn)}, not an object")
    turn = _spelled(turn)
    spelled = speaker(turn)
    role = role_named(spelled)
    if spelled is None:
        raise RowError("bad_column", f"{where} is an object that does not say who speaks")
    if role is None:
        raise unknown_role(spelled, where)
    body = turn.get("content") if turn.get("content") is not None else turn.get("value")
    if meaning(spelled) == CALL:
        beside = _fields(turn, where) or {}
        if "tool_calls" in beside:
            raise RowError("bad_tool_call", f"{where} has other calls next to its own")
        thought, body = _thought(body)
        if thought and reasoning.FIELD in beside:
            raise RowError("reasoning_twice", f"{where} has reasoning in a field and in its text")
        beside |= {reasoning.FIELD: thought} if thought else {}
        beside["tool_calls"] = calls_of(body, where)
        return Message(role, None, beside, *trained(turn, where))
    if role == TOOL and isinstance(body, dict):  # a result, which templates print as JSON text
        body = json.dumps(body, ensure_ascii=False)
    if not isinstance(body, str | None):
        raise RowError("bad_column", f"{where} content is {kind_of(body)}, not text")
    fields = _fields(turn, where)
    if body is None and not (fields and fields.get("tool_calls")):
        more = [k for k, v in turn.items() if k not in _SPOKEN and v not in (None, "", [], {})]
        why = f"; it has {' and '.join(more)}, and no tool_calls" if more else ""
        code = "empty_answer" if role == "assistant" else "bad_column"
        raise RowError(code, f"{where} has no content, or null{why}")
    return Message(role, body, fields, *trained(turn, where))


def _thought(body: Any) -> tuple[str, Any]:
    """The reasoning in front of a call that is written as text, and the call."""
    if not isinstance(body, str) or not body.lstrip().startswith(reasoning.OPEN):
        return "", body
    length = reasoning.length(body)
    thought = body[:length].strip().removeprefix(reasoning.OPEN).removesuffix(reasoning.CLOSE)
    return thought.strip(), body[length:]


def unknown_role(spelled: Any, where: str) -> RowError:
    """The error of a turn of nobody that is known."""
    detail = f"{where} has the role {spelled!r}; say who that is with {as_role(spelled, USER)}"
    return RowError("unknown_role", f"{detail}, or another of {', '.join(ROLES)}")


def as_role(spelled: Any, role: str) -> str:
    """The option that says who a name of a role means, quoted for a shell."""
    return f"--role {shlex.quote(f'{spelled}={role}')}"


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
