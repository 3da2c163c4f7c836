"""What a row says, read on its own: what all tasks read alike.

A reading is what the user was told: a format's name, a variant of it, and the columns that play its
roles. A shape that is not one of the plain ones raises ``UnreadError``: better no answer than a
wrong one.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from expectations.witness import paths
from expectations.witness.raw import Row, UnreadError

Turn: TypeAlias = dict[str, Any]  # as a template gets it
SYSTEM = ("system", "system_prompt", "system_instruction", "systemInstruction")
TOOLS = ("tools", "functions")
QUESTIONS = ("question", "query", "problem", "prompt", "input", "input_text", "text_input")
_ROLES = {
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "bot", "model", "chatgpt", "ai", "chatbot"),
    "system": ("system",),
    "tool": ("tool", "observation", "ipython"),
    "call": ("function_call", "function_calls", "tool_call", "tool_calls"),
}
FLAGS = ("weight", "loss_weight", "train", "training", "trainable", "loss", "loss_mask")
_PASSED = ("tool_call_id", "name")
_CALLS = ("tool_calls", "function_call")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_NAMING = ("role", "from", "content", "value")
_ENDING = re.compile(r"<[^<>\s]+>\s*$")
_STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>")


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation.

    Attributes:
        turns: as templates get them; a text without turns is one with the role ``text``.
        weights: of each turn in the loss, 0 where it is not trained; None leaves it to the policy.
    """

    turns: tuple[Turn, ...]
    weights: tuple[float | None, ...]
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """A pair: whole conversations, of which the first ``shared`` turns are the prompt."""

    chosen: tuple[Turn, ...]
    rejected: tuple[Turn, ...]
    shared: int
    margin: float | None = None
    tools: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """A problem, its steps, and their ratings; ``pieces``: the row's own text around its tags."""

    problem: str
    steps: tuple[str, ...]
    ratings: tuple[float | None, ...]
    pieces: tuple[str, ...] = ()
    system: str | None = None


Said: TypeAlias = Talk | Sides | Steps | None  # None: it was refused, and keeps its number


@dataclass
class View:
    """A row under the names that the reading gives its columns.

    Attributes:
        variant: of the format; ``words``: the options that the user gave; ``named``: what stands
            for a column's own name; ``asked``: the names that were looked for.
    """

    row: Row
    variant: str
    words: dict[str, Any]
    named: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def get(self, *names: str) -> Any:
        """What is there under any of some names that mean the same; None where nothing is.

        Raises:
            UnreadError: several are, and differ.
        """
        self.asked.update(names)
        given = [name for name in names if name in self.named]
        if given:
            found = [paths.at(self.row, self.named[name]) for name in given]
        else:
            taken = set(self.named.values())
            found = [self.row.get(name) for name in names if name not in taken]
        found = [one for one in found if one not in (None, "", [], {})]
        if any(one != found[0] for one in found):
            raise UnreadError(f"several columns for {names[0]}")
        return found[0] if found else None

    def text(self, *names: str) -> str | None:
        """The same, where it is a text."""
        return text(self.get(*names), names[0])

    def neutral(self) -> float | None:
        """What a neutral rating means."""
        return {"good": 1.0, "bad": 0.0}.get(self.words["neutral"])


def text(value: Any, name: str) -> str | None:
    """A text, or None where there is none; raises ``UnreadError`` for anything else."""
    if value is not None and not isinstance(value, str):
        raise UnreadError(f"{name} is no text")
    return value


def views(row: Row, reading: str, words: dict[str, Any]) -> list[tuple[str, View]]:
    """The row as each format of its reading sees it, with the format's name."""
    row = _kept(row, words["ignore"])
    found = []
    for one in reading.split("+"):
        name, _, columns = one.partition("?")
        name, _, variant = name.partition("/")
        named = dict(parse_qsl(columns)) | words["map"]
        found.append((name, View(row, variant, words, named)))
    return found


def _kept(row: Row, ignored: Iterable[str]) -> Row:
    """The row without the columns that the user leaves out."""
    for path in ignored:
        head, inside, rest = path.partition("[].")
        if inside and isinstance(row.get(head), list):
            some = [_kept(x, [rest]) if isinstance(x, dict) else x for x in row[head]]
            row = {**row, head: some}
        elif path in row:
            row = {key: value for key, value in row.items() if key != path}
        elif "." in path and isinstance(row.get(path.partition(".")[0]), dict):
            head, _, rest = path.partition(".")
            row = {**row, head: _kept(row[head], [rest])}
    return row


# Turns.


def role_of(turn: Turn, words: dict[str, Any]) -> str:
    """Who says a turn; raises ``UnreadError`` for nobody that is known."""
    name = turn.get("role", turn.get("from"))
    name = words["role"].get(name, name)
    for role, spellings in _ROLES.items():
        if str(name).strip().lower() in spellings:
            return role
    raise UnreadError("a role of another name")


def _content(turn: Turn) -> str | None:
    value = turn.get("content", turn.get("value"))
    if not isinstance(value, list):
        return text(value, "content")
    if not all(isinstance(p, dict) and p.keys() == {"type", "text"} for p in value):
        raise UnreadError("parts that are no texts")
    return "".join(p["text"] for p in value)


def _calls(value: Any) -> list[Turn]:
    """Calls of tools, in the one shape that templates know; of any one, or of its JSON text."""
    value = json.loads(value) if isinstance(value, str) else value
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


def turns(value: Any, words: dict[str, Any]) -> tuple[list[Turn], list[float | None]]:
    """Turns as templates get them, and their weights in the loss."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = json.loads(value)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UnreadError("turns that are no list of objects")
    found: list[Turn] = []
    weights: list[float | None] = []
    called = False
    for one in value:
        if not ({"role", "from"} & one.keys() and {"content", "value", *_CALLS} & one.keys()):
            raise UnreadError("turns with other keys")
        role, content = role_of(one, words), _content(one)
        turn: Turn = {"role": role, "content": content}
        calls = [one[key] for key in _CALLS if one.get(key) not in (None, "", [])]
        if role == "call":
            turn, calls = {"role": "assistant", "content": None}, [content, *calls]
        if len(calls) > 1:
            raise UnreadError("calls in several fields")
        if calls:
            turn["tool_calls"] = _calls(calls[0])
        turn |= {key: one[key] for key in _PASSED if one.get(key) is not None}
        reasoning = [one[key] for key in _REASONING if one.get(key)]
        if len(reasoning) > 1:
            raise UnreadError("reasoning in several fields")
        if reasoning:
            turn = thinking(turn, reasoning[0], words)
        known = {*_NAMING, *FLAGS, *_PASSED, *_REASONING, *_CALLS}
        other = {key for key in one.keys() - known if one[key] not in (None, "", [], {})}
        if other & words["printed"]:
            raise UnreadError("a key of a turn that the template may print")
        again, called = called and role == "call", role == "call"
        if not again:
            found.append(turn)
            weights.append(weight(one))
        elif turn.keys() == {"role", "content", "tool_calls"} and weight(one) == weights[-1]:
            found[-1]["tool_calls"] += turn["tool_calls"]  # calls in a row are made at once
        else:
            raise UnreadError("calls in a row that say more")
    return found, weights


def thinking(turn: Turn, reasoning: Any, words: dict[str, Any]) -> Turn:
    """A turn with its reasoning, in a field or in front of its text, as it was asked for."""
    if words["reasoning_in"] != "think":
        return {**turn, "reasoning": reasoning}
    thought = str(text(reasoning, "reasoning")).strip("\n")
    said = (turn["content"] or "").lstrip("\n")
    return {**turn, "content": f"<think>\n{thought}\n</think>\n\n{said}"}


def weight(turn: Turn) -> float | None:
    """What the flags of a turn, or of an exchange, say of its weight; None where nothing does."""
    flags = {float(turn[key]) for key in FLAGS if isinstance(turn.get(key), bool | int | float)}
    if len(flags) > 1 or not all(math.isfinite(x) and x >= 0 for x in flags):
        raise UnreadError("several weights of a turn")
    return flags.pop() if flags else None


def opened(view: View, own: Sequence[Turn]) -> list[Turn]:
    """Turns behind the row's system text and history."""
    system, history = view.text(*SYSTEM), view.get("history")
    before: list[Turn] = []
    for pair in history or ():
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
        ):
            raise UnreadError("a history of another shape")
        before += [user(pair[0]), assistant(pair[1])]
    if own and own[0]["role"] == "system":
        if system is not None and own[0]["content"] != system:
            raise UnreadError("two system texts")
        return [own[0], *before, *own[1:]]
    return [*([{"role": "system", "content": system}] if system else []), *before, *own]


def user(said: str) -> Turn:
    """A turn of the user."""
    return {"role": "user", "content": said}


def assistant(said: str) -> Turn:
    """An answer."""
    return {"role": "assistant", "content": said}


def tools(view: View) -> list[Any] | None:
    """The tools that a row declares."""
    found = view.get(*TOOLS)
    if isinstance(found, str):
        found = json.loads(found)
    if found is None or (isinstance(found, list) and all(isinstance(x, dict) for x in found)):
        return found or None
    raise UnreadError("tools of another shape")


def plain(said: Iterable[Turn], words: dict[str, Any]) -> list[Turn]:
    """Turns without the text of stops behind answers, and without reasoning, where it was asked."""
    found = []
    for turn in said:
        content = turn.get("content") or ""
        if turn["role"] not in ("assistant", "text"):
            found.append(turn)
            continue
        turn = {**turn, "content": unstopped(content, words)} if content else dict(turn)
        if words["reasoning"] == "strip" and turn["role"] == "assistant":
            turn.pop("reasoning", None)
            if content.lstrip().startswith("<think>"):
                turn["content"] = turn["content"].partition("</think>")[2].lstrip()
        found.append(turn)
    return found


def unstopped(content: str, words: dict[str, Any]) -> str:
    """A text without the stops at its end; raises ``UnreadError`` where one may be another text."""
    while words["stop_text"] == "strip" and (end := _ENDING.search(content)):
        if end.group().rstrip() not in _STOPS or "<s>" in content:
            raise UnreadError("a stop as text that is removed")
        content = content[: end.start()]
    return content
