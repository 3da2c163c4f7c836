"""What a message says in typed parts (texts, reasoning, calls, results), and a row's tools.

Three spellings: a ``type`` and a key for the value (``{type: text, value}``, ``{type: thinking,
thinking}``, ``{type: tool_use, name, input}``), or one key that is both (``{text}``,
``{functionCall}``, ``{toolUse}``, ``{reasoningContent}``). Values may be written as JSON text.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.contract import Row
from stages.errors import RowError
from stages.files import line_block, printed
from stages.formats._fields import columns_of
from stages.rows import words

TEXT, REASONING, CALL, RESULT = "text", "reasoning", "call", "result"
_KINDS = {name: kind for kind, names in columns_of("part_types").items() for name in names}
_MEANT = {word: kind for kind in (TEXT, REASONING) for word in words.exact("part", kind)}
_VALUES = columns_of("part_values")
_ARGUMENTS, _IDS = columns_of("part_of_call").values()
_CALLED = {*_ARGUMENTS, "name", "function", "type", *_IDS}


@dataclass(slots=True)
class Parts:
    """A message's parts by what they are.

    Attributes:
        text: the text parts, joined; None where there are none.
        reasoning: the same of the reasoning.
        calls: tool calls, as ``calls_of`` gives them.
        results: results of tools as turns: their text, and the call's id or the tool's name.
        left: what the parts say beside that, by ``content[].key``.
    """

    text: str | None = None
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, str]] = field(default_factory=list)
    left: dict[str, Any] = field(default_factory=dict)

    @property
    def has_more(self) -> bool:
        """Whether they say more than a text."""
        return bool(self.reasoning or self.calls or self.results or self.left)

    def leave(self, said: Row, known: Collection[str]) -> None:
        """Keep what an object says under other keys than those that are known."""
        self.left.update({f"content[].{key}": v for key, v in said.items() if key not in known})


def read(value: list[Any], where: str) -> Parts:
    """The parts of one message.

    Raises:
        RowError: ``unsupported_content``: a part is not text and nothing else that is known, or
            stands where no template prints it; ``bad_column``: a part has no value;
            ``bad_tool_call``.
    """
    parts, texts = Parts(), []
    for part in value:
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        kind, used = _kind(part, where)
        texts += [str(part.get("type", TEXT))] if kind == TEXT else []
        if kind == REASONING and (parts.text or parts.calls):
            raise RowError("unsupported_content", f"{where} has reasoning after its answer")
        if kind == TEXT and parts.calls:
            raise RowError("unsupported_content", f"{where} has a text after a tool call")
        if kind == RESULT and (parts.text or parts.calls or parts.reasoning):
            raise RowError("unsupported_content", f"{where} has a tool's result after other parts")
        used |= _ADDED[kind](parts, part, where)
        parts.leave({key: one for key, one in part.items() if one is not None}, used)
    if texts[1:] and not _KINDS.keys() >= {*texts}:
        raise RowError("unsupported_content", f"{where} has the texts {', '.join(texts)}")
    return parts


def _named(type_: Any) -> str | None:
    """What the type of a part is, or what its words mean; None for any other."""
    name = str(type_)
    kinds = {_MEANT.get(word) for word in words.words(name) if word not in words.FILLERS}
    return _KINDS.get(name) or (kinds.pop() if len(kinds) == 1 else None)


def _kind(part: Any, where: str) -> tuple[str, set[str]]:
    """What a part is, and the keys that say so."""
    if not isinstance(part, dict):
        named: Any = type(part).__name__
    elif (named := part.get("type")) is not None:
        if said := _named(named):
            return said, {"type"}
    else:
        keys = [key for key in part if key in _KINDS and part[key] is not None]
        if len(keys) == 1 or (keys and all(_KINDS[key] == TEXT for key in keys)):
            thought = keys[0] == "text" and part.get("thought") is True
            used = {"thought"} if thought or part.get("thought") is False else set()
            return REASONING if thought else _KINDS[keys[0]], used
        named = next(iter(part), None)
    raise RowError("unsupported_content", f"{where} has a part of type {named!r}")


def _value(part: Mapping[str, Any], kind: str, where: str) -> tuple[Any, str]:
    """The value of a part, and the key that it stands under."""
    keys = [key for key in _VALUES[kind] if part.get(key) is not None]
    if not keys:
        raise RowError("bad_column", f"{where} has a part without its {_VALUES[kind][0]}")
    if len(keys) > 1 and any(part[key] != part[keys[0]] for key in keys[1:]):
        raise RowError("bad_column", f"{where}: {keys[0]} and {keys[1]} of a part differ")
    return part[keys[0]], keys[0]


def _said(value: Any, where: str) -> str:
    """A text, also where it is wrapped in an object or a list of text parts."""
    if isinstance(value, dict) and len(value) == 1 and set(value) <= {"text", "output"}:
        (value,) = value.values()
    if isinstance(value, list):
        inner = read(value, where)
        if inner.has_more:
            raise RowError("unsupported_content", f"{where} has more than text")
        value = inner.text or ""
    if not isinstance(value, str):
        raise RowError("bad_column", f"{where} has a part that is not text")
    return value


def _add_text(into: Parts, part: dict[str, Any], where: str) -> set[str]:
    value, key = _value(part, TEXT, where)
    if not isinstance(value, str):
        raise RowError("bad_column", f"{where} has a part whose {key} is not text")
    into.text = (into.text or "") + value
    return {one for one in _VALUES[TEXT] if part.get(one) == value}


def _add_reasoning(into: Parts, part: dict[str, Any], where: str) -> set[str]:
    value, key = _value(part, REASONING, where)
    if isinstance(value, dict) and isinstance(value.get("reasoningText"), dict):
        into.leave(value, {"reasoningText"})
        into.leave(value["reasoningText"], {"text"})
        value = value["reasoningText"].get("text")
    into.reasoning = (into.reasoning or "") + _said(value, where)
    return {key}


def _one_of(places: tuple[Row, ...], names: tuple[str, ...], where: str) -> Any:
    """What objects say under any of some keys; None where they say nothing.

    Raises:
        RowError: they say different things.
    """
    each = [(name, place.get(name)) for place in places for name in names]
    said = [(name, value) for name, value in each if value is not None]
    if any(value != said[0][1] for _, value in said[1:]):
        both = " and ".join(dict.fromkeys(name for name, _ in said))
        raise RowError("bad_tool_call", f"{where} gives two values for {both}, and they differ")
    return said[0][1] if said else None


def _id_of(places: tuple[Row, ...], where: str) -> str | None:
    call_id = _one_of(places, _IDS, where)
    return None if call_id is None else str(call_id)


def _add_call(into: Parts, part: dict[str, Any], where: str) -> set[str]:
    keys = [key for key in _VALUES[CALL] if part.get(key) is not None]
    value = part[keys[0]] if keys else part  # without such a key the part itself is the call
    if isinstance(value, dict):
        inner = value.get("function", value)
        if not isinstance(inner, dict):
            raise RowError("bad_tool_call", f"{where} has a call whose function is not an object")
        places = (value, inner) if inner is not value else (value,)
        name = _one_of(places, ("name",), f"{where}: a call")
        if not isinstance(name, str):
            raise RowError("bad_tool_call", f"{where} has a call without a name")
        function = {"name": name, "arguments": _one_of(places, _ARGUMENTS, f"{where}: a call")}
        for said in places if keys else places[1:]:
            into.leave(said, _CALLED)
        value, named = {"type": "function", "function": function}, _id_of(places, where)
        value = value if named is None else {**value, "id": named}
    into.calls += calls_of(value, where)
    return {*keys[:1]} if keys else {*_ARGUMENTS, "name", "function", *_IDS}


def _add_result(into: Parts, part: dict[str, Any], where: str) -> set[str]:
    value, key = _value(part, RESULT, where)
    beside, used = part, {key, "name", *_IDS}
    if part.get("is_error") is False:
        used.add("is_error")
    if key in _KINDS and isinstance(value, dict):  # one key that says both: the rest is inside
        beside, inner = value, _one_of((value,), ("content", "response"), f"{where}: a result")
        if inner is None or value.get("status") not in (None, "success"):
            what = "has no content" if inner is None else "says that the tool failed"
            raise RowError("unsupported_content", f"{where} has a tool's result that {what}")
        into.leave(value, {"content", "response", "status", "name", *_IDS})
        used, value = {key}, inner
    if isinstance(value, dict) and not set(value) <= {"text", "output"}:
        raise RowError("unsupported_content", f"{where} has a tool's result that is an object")
    result = {"role": "tool", "content": _said(value, where)}
    named = {"tool_call_id": _id_of((beside,), where), "name": beside.get("name")}
    into.results.append({**result, **{k: v for k, v in named.items() if v is not None}})
    return used


_ADDED = {TEXT: _add_text, REASONING: _add_reasoning, CALL: _add_call, RESULT: _add_result}


def json_value(value: Any, where: str, code: str) -> Any:
    """A value that may be written as JSON text, read as strictly as a row; calls may also quote
    texts as Python does."""
    if not isinstance(value, str):
        return value
    try:
        holder = line_block.parse(f'{{"value":{value}}}'.encode())
    except RowError as error:
        if code == "bad_tool_call" and (said := printed.value_of(value)) is not None:
            return said
        raise RowError(code, f"{where} is not JSON: {error.detail}") from error
    if len(holder) != 1:  # the text closed the object that it was put in: 1, "more": 2
        raise RowError(code, f"{where} is not one JSON value")
    return holder["value"]


def _function(call: Any, where: str) -> dict[str, Any]:
    """A function's name and arguments; arguments written as JSON text become the object.

    Raises:
        RowError: ``bad_tool_call``: there is no name, or the arguments are not an object.
    """
    if not isinstance(call, dict) or call.get("name") in (None, ""):
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
    """A tool call in either spelling: the function inside, or by itself; or its JSON text."""
    value = json_value(value, where, "bad_tool_call")
    if not isinstance(value, dict) or "function" not in value:
        value = {"type": "function", "function": value}
    return {**value, "function": _function(value["function"], where)}


def calls_of(value: Any, where: str) -> list[dict[str, Any]]:
    """Tool calls as a list, one object, or the JSON text of either."""
    calls = json_value(value, where, "bad_tool_call")
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list) or not calls:
        raise RowError("bad_tool_call", f"{where} has no calls")
    made = [_call(call, where) for call in calls]
    ids = [str(named) for one in made if (named := one.get("id")) not in (None, "")]
    if len({*ids}) < len(ids):
        raise RowError("bad_tool_call", f"{where} has two calls with one id")
    return made


# The tools that a row offers the model: a list of objects; a list of JSON texts; one JSON text of
# all, or several one after another; one object, or a list inside of an object. All of them become
# the same list, for every task and place.

TOOLS = columns_of("tools")["tools"]
_CODE = "bad_tools"
_NAMING = ("name", "function")  # a key of what is one tool
_BETWEEN = re.compile(r"[\s,]*")  # two values of a text
_ENDS = json.JSONDecoder(parse_int=str, parse_float=str)  # finds the end of a value, no more


def tools(row: Row) -> list[Any] | None:
    """The tools in a row's columns; None where it has none.

    Raises:
        RowError: a column holds something else, or two columns name different tools.
    """
    if row.keys().isdisjoint(TOOLS):
        return None
    named = [listed for name in TOOLS if (listed := listed_in(row.get(name), name))]
    if named[1:] and named[0] != named[1]:
        raise RowError(_CODE, f"{' and '.join(TOOLS)} name different tools")
    return named[0] if named else None


def listed_in(value: Any, where: str) -> list[Any]:
    """Tools as a list of objects; empty where there are none.

    Raises:
        RowError: ``bad_tools``: the value is something else.
    """
    if value is None:
        return []
    value = _parsed(value, where) if isinstance(value, str) else value
    value = _inside(value) if isinstance(value, dict) else value
    if not isinstance(value, list):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise RowError(_CODE, f"{where} is {kind}, not a list")
    found: list[Any] = []
    for at, one in enumerate(value):
        if isinstance(one, str):
            found += listed_in(one, f"{where}[{at}]")
        else:
            inside = _inside(one) if isinstance(one, dict) else one
            found += inside if isinstance(inside, list) else [one]
    return found


def _inside(one: dict[str, Any]) -> Any:
    """The list that an object wraps, or that it makes where it is a tool; else the object."""
    if any(key in one for key in _NAMING):
        return [one]
    values = [value for value in one.values() if value is not None]
    return values[0] if len(values) == 1 and isinstance(values[0], list) else one


def _parsed(text: str, where: str) -> Any:
    """The value of a JSON text, or the list of those that follow one another in it."""
    values: list[Any] = []
    at, text = 0, text.strip()
    while at < len(text):
        try:
            stop = _ENDS.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            return json_value(text, where, _CODE)  # which says what is wrong
        values.append(json_value(text[at:stop], where, _CODE))
        between = _BETWEEN.match(text, stop)
        at = between.end() if between else stop
    return values[0] if len(values) == 1 else values
