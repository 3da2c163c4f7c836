"""Turns in the dialects that rows have them in, as templates get them, with their weights."""

import ast
import json
import math
from collections.abc import Iterator
from itertools import cycle
from typing import Any, TypeAlias

from expectations.witness.raw import UnreadError

Turn: TypeAlias = dict[str, Any]  # as a template gets it
_ROLES = {
    "user": "user usr human prompter customer client caller visitor patient 用户".split(),
    "assistant": """assistant gpt bot model chatgpt ai chatbot bing bard llm agent doctor
      助手""".split(),
    "system": ["system", "sys"],
    "tool": ["tool", "observation", "ipython", "environment", "function"],
    "call": ["function_call", "function_calls", "tool_call", "tool_calls"],
}
FLAGS = ("weight", "loss_weight", "train", "training", "trainable", "loss", "loss_mask")
_PASSED = ("tool_call_id", "name")
_CALLS = ("tool_calls", "function_call")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_LONG = ("length", "max_tokens", "max_output_tokens", "model_length")
_UNFINISHED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("finish_reason", "stop_reason"), _LONG),
    **dict.fromkeys(("prefix", "partial"), (True,)),
    "end_turn": (False,),
    "status": ("incomplete", "in_progress"),
}
_BODIES = ("content", "value", "parts")
_TEXTS = ("text", "message", "utterance", "system_prompt")  # where there is none of these
_NAMING = ("role", "from", *_BODIES)
_EMPTY: tuple[Any, ...] = (None, "", [], {})
# What a part is, and the keys that may have its value.
_PARTS = {
    "text": "text input_text output_text answer final_answer response",
    "reasoning": "reasoning thinking think thought reasoningContent",
    "call": "tool_call tool_use toolUse functionCall function_call",
    "result": "tool_result tool_response toolResult functionResponse function_response",
}
_KINDS = {name: kind for kind, names in _PARTS.items() for name in names.split()}
_VALUES = {
    "text": "text value content",
    "reasoning": "thinking reasoning reasoningContent text value content",
    "call": "functionCall function_call toolUse tool_call value",
    "result": "functionResponse function_response toolResult value content",
}
_IDS = ("tool_use_id", "toolUseId", "tool_call_id", "id")


def user(said: str) -> Turn:
    """A turn of the user."""
    return {"role": "user", "content": said}


def assistant(said: str) -> Turn:
    """An answer."""
    return {"role": "assistant", "content": said}


def text(value: Any, name: str) -> str | None:
    """A text, or None where there is none; raises ``UnreadError`` for anything else."""
    if value is not None and not isinstance(value, str):
        raise UnreadError(f"{name} is no text")
    return value


def role_of(turn: Turn, words: dict[str, Any]) -> str:
    """Who says a turn; raises ``UnreadError`` for nobody that is known."""
    name = turn.get("from") if turn.get("role") is None else turn["role"]
    name = words["role"].get(name, name)
    for role, spellings in _ROLES.items():
        if str(name).strip().lower() in spellings:
            return role
    raise UnreadError("a role of another name")


def weight(turn: Turn) -> float | None:
    """What the flags of a turn, or of an exchange, say of its weight; None where nothing does."""
    flags = {float(turn[key]) for key in FLAGS if isinstance(turn.get(key), bool | int | float)}
    if len(flags) > 1 or not all(math.isfinite(x) and x >= 0 for x in flags):
        raise UnreadError("several weights of a turn")
    return flags.pop() if flags else None


def thinking(turn: Turn, reasoning: Any, words: dict[str, Any]) -> Turn:
    """A turn with its reasoning, in a field or in front of its text, as it was asked for."""
    if words["reasoning_in"] != "think":
        return {**turn, "reasoning": reasoning}
    thought = str(text(reasoning, "reasoning")).strip("\n")
    said = (turn["content"] or "").lstrip("\n")
    return {**turn, "content": f"<think>\n{thought}\n</think>\n\n{said}"}


def _same(said: Turn, names: tuple[str, ...], what: str) -> Any:
    """What stands under any of some keys; None where nothing does."""
    found = [said[name] for name in names if said.get(name) is not None]
    if any(one != found[0] for one in found):
        raise UnreadError(f"{what} with two values")
    return found[0] if found else None


def _loaded(text: str) -> Any:
    """The value of a JSON text, or of one that quotes texts as Python does."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except SyntaxError as error:
        raise UnreadError("a call of another shape") from error


def calls_of(value: Any) -> list[Turn]:
    """Calls of tools, in the one shape that templates know; of any one, or of its JSON text."""
    value = _loaded(value) if isinstance(value, str) else value
    found = []
    for one in value if isinstance(value, list) else [value]:
        one = one if "function" in one else {"type": "function", "function": one}
        named = dict(one["function"])
        if isinstance(named["arguments"], str):
            named["arguments"] = json.loads(named["arguments"])
        if not isinstance(named["arguments"], dict) or "name" not in named:
            raise UnreadError("a call of another shape")
        found.append({**one, "function": named})
    return found


def _kind(part: Turn) -> str:
    """What a part is: its type, or the only key that says so."""
    names = [part["type"]] if part.get("type") is not None else [k for k in part if k in _KINDS]
    if len(names) != 1 or names[0] not in _KINDS:
        raise UnreadError("parts of another type")
    thought = names[0] == "text" and part.get("thought") is True and "type" not in part
    return "reasoning" if thought else _KINDS[names[0]]


def parts_of(value: Any) -> dict[str, Any]:
    """What typed parts say: ``text``, ``reasoning``, ``call`` and ``result``, where they do; texts
    go on where the last one has ended."""
    found: dict[str, Any] = {}
    for part in value:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        kind = _kind(part)
        said = (
            _same(part, (*_VALUES[kind].split(),), f"a part ({kind})") if kind != "call" else part
        )
        if kind == "call":
            found[kind] = [*found.get(kind, []), *_called(part)]
        elif kind == "result":
            found[kind] = [*found.get(kind, []), _result(part, said)]
        elif kind == "text" and not isinstance(said, str):
            raise UnreadError("a part that is no text")
        else:
            found[kind] = found.get(kind, "") + _flat(said)
    return found


def _flat(said: Any) -> str:
    """A text, also in an object or in parts of its own."""
    if isinstance(said, dict) and isinstance(said.get("reasoningText"), dict):
        said = said["reasoningText"].get("text")
    if isinstance(said, dict) and len(said) == 1 and {*said} <= {"text", "output"}:
        (said,) = said.values()
    if isinstance(said, list):
        inner = parts_of(said)
        if inner.keys() - {"text"}:
            raise UnreadError("parts inside of a part")
        said = inner.get("text", "")
    if not isinstance(said, str):
        raise UnreadError("a part that is no text")
    return said


def _called(part: Turn) -> list[Turn]:
    """The calls of a part, which may be the call itself."""
    value = next((part[k] for k in _VALUES["call"].split() if part.get(k) is not None), part)
    if not isinstance(value, dict):
        return calls_of(value)
    both = {**value.get("function", {}), **{k: v for k, v in value.items() if k != "function"}}
    arguments = _same(both, ("arguments", "input", "args"), "a call")
    own, name = _same(both, _IDS, "a call"), both.get("name")
    if not isinstance(name, str):
        raise UnreadError("a call of another shape")
    made: Turn = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return calls_of([made if own is None else {**made, "id": str(own)}])


def _result(part: Turn, said: Any) -> Turn:
    """A turn with the result of a tool."""
    named = part
    if isinstance(said, dict) and any(part.get(name) is said for name in _PARTS["result"].split()):
        named, said = said, _same(said, ("content", "response"), "a result")
        if named.get("status") not in (None, "success"):
            raise UnreadError("a result of another shape")
    own, name = _same(named, _IDS, "a result"), named.get("name")
    of = {} if own is None else {"tool_call_id": str(own)}
    return {"role": "tool", "content": _flat(said), **of, **({"name": name} if name else {})}


def _bodied(turn: Turn) -> Turn:
    """A turn whose text stands under ``content``."""
    there = [key for key in _BODIES if turn.get(key) not in (None, [])]
    if not there and not turn.keys() & {*_BODIES} and list not in map(type, turn.values()):
        there = [key for key in _TEXTS if turn.get(key) not in (None, "")][:1]
    body = _same(turn, (*there,), "a turn")
    return {**{k: v for k, v in turn.items() if k not in (*_BODIES, *there)}, "content": body}


def _spoken(one: Turn, words: dict[str, Any]) -> Iterator[tuple[Turn, float | None]]:
    """The turns that one object is: the results of tools in it stand before what it says."""
    role, one = role_of(one, words), _bodied(one)
    if role == "tool" and isinstance(one["content"], dict):
        one = {**one, "content": json.dumps(one["content"], ensure_ascii=False)}
    listed = isinstance(one["content"], list)
    parts: dict[str, Any] = {"text": text(one["content"], "content")} if not listed else {}
    parts = parts_of(one["content"]) if listed else parts
    turn: Turn = {"role": role, "content": parts.get("text")}
    calls = [one[key] for key in _CALLS if one.get(key) not in (None, "", [])]
    calls += [parts["call"]] if parts.get("call") else []
    if role == "call":
        called = turn["content"]
        if isinstance(called, str) and called.lstrip().startswith("<think>"):
            thought, _, called = called.lstrip().removeprefix("<think>").partition("</think>")
            parts |= {"reasoning": thought.strip()} if thought.strip() else {}
        turn, calls = {"role": "assistant", "content": None}, [called, *calls]
    if len(calls) > 1:
        raise UnreadError("calls in several fields")
    if calls:
        turn["tool_calls"] = calls_of(calls[0])
    turn |= {key: one[key] for key in _PASSED if one.get(key) is not None}
    reasoning = [one[key] for key in (*_REASONING,) if one.get(key)]
    reasoning += [parts["reasoning"]] if parts.get("reasoning") else []
    if len(reasoning) > 1:
        raise UnreadError("reasoning in several fields")
    if reasoning:
        turn = thinking(turn, reasoning[0], words)
    known = {*_NAMING, *FLAGS, *_PASSED, *_REASONING, *_CALLS}
    other = {key for key in one.keys() - known if one[key] not in _EMPTY}
    if other & words["printed"]:
        raise UnreadError("a key of a turn that the template may print")
    said = {key: one.get(key) for key in _UNFINISHED if isinstance(one.get(key), str | bool)}
    if any(value in _UNFINISHED[key] for key, value in said.items()):
        turn["unfinished"] = True
    results: list[Turn] = parts.get("result", [])
    yield from ((result, None) for result in results[:-1])
    if results and "text" in parts:
        yield results[-1], None
    yield (results[-1] if results and "text" not in parts else turn), weight(one)


def turns(value: Any, words: dict[str, Any]) -> tuple[list[Turn], list[float | None]]:
    """Turns as templates get them, and their weights in the loss."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if isinstance(value, list) and value and all(isinstance(one, str | None) for one in value):
        texts = zip(cycle((user, assistant)), filter(None, value), strict=False)
        said = [speaks(one) for speaks, one in texts]
        return said, [None] * len(said)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UnreadError("turns that are no list of objects")
    found: list[Turn] = []
    weights: list[float | None] = []
    called = False
    for one in value:
        again = called and role_of(one, words) == "call"
        called = role_of(one, words) == "call"
        for turn, own in _spoken(one, words):
            if not again:
                found.append(turn)
                weights.append(own)
            elif turn.keys() == {"role", "content", "tool_calls"} and own == weights[-1]:
                found[-1]["tool_calls"] += turn["tool_calls"]  # calls in a row are made at once
            else:
                raise UnreadError("calls in a row that say more")
    return found, weights
