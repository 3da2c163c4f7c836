"""What a row says, read on its own: what all tasks read alike.

A reading is what the user was told: a format's name, a variant of it, and the columns that play its
roles. A shape that is not one of the plain ones raises ``UnreadError``: better no answer than a
wrong one.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from expectations.witness import paths, turns
from expectations.witness.raw import Row, UnreadError
from expectations.witness.turns import Turn

SYSTEM = ("system", "system_prompt", "system_instruction", "systemInstruction")
TOOLS = ("tools", "functions")
QUESTIONS = ("question", "query", "problem", "prompt", "input", "input_text", "text_input")
STOPS = tuple(
    """<|im_end|> <|endoftext|> <|eot_id|> <|eom_id|> <|eot|> <|eom|> <|end_of_text|> <end_of_turn>
    <eos> <|end|> <|return|> <|call|> <|END_OF_TURN_TOKEN|> <｜end▁of▁sentence｜> </s>
    <extra_id_1>""".split()
)


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


@dataclass(frozen=True, slots=True)
class Given:
    """Token ids that a row has, and their labels."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]


Said: TypeAlias = Talk | Sides | Steps | Given | None  # None: it was refused, and keeps its number


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
        return turns.text(self.get(*names), names[0])

    def neutral(self) -> float | None:
        """What a neutral rating means."""
        return {"good": 1.0, "bad": 0.0}.get(self.words["neutral"])


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


def system(view: View) -> str | None:
    """The row's system text: a text, or parts of one."""
    found = view.get(*SYSTEM)
    found = found.get("parts") if isinstance(found, dict) else found
    parts = turns.parts_of(found) if isinstance(found, list) else {"text": found}
    if parts.keys() != {"text"}:
        raise UnreadError("a system text of another shape")
    return turns.text(parts["text"], "system")


def _history(view: View) -> list[Turn]:
    """Earlier exchanges: pairs of texts, or turns."""
    found = view.get("history") or []
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return turns.turns(found, view.words)[0]
    if not all(isinstance(pair, list) and [*map(type, pair)] == [str, str] for pair in found):
        raise UnreadError("a history of another shape")
    return [turn for a, b in found for turn in (turns.user(a), turns.assistant(b))]


def opened(view: View, own: Sequence[Turn], whole: bool = True) -> list[Turn]:
    """Turns behind the row's system text and history; ``whole``: they may repeat the history."""
    text, before = system(view), _history(view)
    head, rest = [*own[:1]], [*own[1:]]
    if not own or own[0]["role"] != "system":
        head, rest = [{"role": "system", "content": text}] if text else [], [*own]
    elif text is not None and own[0]["content"] != text:
        raise UnreadError("two system texts")
    says = [[(one["role"], one["content"]) for one in each] for each in (before, rest)]
    again = whole and says[0] == says[1][: len(before)]
    return [*head, *([] if again else before), *rest]


def tools(view: View) -> list[Any] | None:
    """The tools that a row declares."""
    return _listed(view.get(*TOOLS) or []) or None


def _listed(value: Any) -> list[Any]:
    """Tools as a list: of one that may be inside of an object, or of texts of JSON."""
    value = _unwrapped(_parsed(value) if isinstance(value, str) else value)
    if not isinstance(value, list):
        raise UnreadError("tools of another shape")
    found: list[Any] = []
    for one in value:
        inside = _listed(one) if isinstance(one, str) else _unwrapped(one)
        found += inside if isinstance(inside, list) else [inside]
    return found


def _unwrapped(value: Any) -> Any:
    """The list that an object is around; a tool is a list of itself."""
    if not isinstance(value, dict):
        return value
    inside = [one for one in value.values() if one is not None]
    if "name" in value or "function" in value:
        return [value]
    return inside[0] if len(inside) == 1 and isinstance(inside[0], list) else value


def _parsed(text: str) -> Any:
    """The value of a JSON text, or a list of those that follow one another in it."""
    found, at, text = [], 0, text.strip()
    while at < len(text):
        one, at = json.JSONDecoder().raw_decode(text, at)
        found.append(one)
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
    return found[0] if len(found) == 1 else found


def plain(said: Iterable[Turn], words: dict[str, Any]) -> list[Turn]:
    """Turns without the text of stops behind answers, and without reasoning, where it was asked."""
    found = []
    for turn in said:
        content = turn.get("content") or ""
        if turn["role"] not in ("assistant", "text"):
            found.append(turn)
            continue
        turn = {**turn, "content": unstopped(content, words)} if content else dict(turn)
        strips = words["reasoning"] == "strip"
        if turn["role"] == "assistant" and (strips or "</think>" in content):
            length = thought(turn.get("content") or "")
            turn = {k: v for k, v in turn.items() if not (strips and k == "reasoning")}
            turn |= {"content": turn["content"][length:]} if strips and length else {}
        found.append(turn)
    return found


def thought(answer: str, before: str = "") -> int:
    """How long the reasoning is that an answer begins with, with the blanks behind it.

    Raises:
        UnreadError: where it ends cannot be told.
    """
    head, closed, rest = answer.partition("</think>")
    if head.lstrip().startswith("<think>") or before.rstrip().endswith("<think>"):
        lines = [""]
    elif not closed or "<think>" in head or before.rstrip().endswith("</think>"):
        return 0
    else:  # the prompt has opened it
        lines = head.split("\n")
    if not closed or lines[-1].strip(" \t"):
        raise UnreadError("reasoning without an end")
    return len(answer) - len(rest.lstrip())


def unstopped(content: str, words: dict[str, Any]) -> str:
    """A text without the stops at its end; in HTML, ``</s>`` closes what ``<s>`` has opened."""
    while words["stop_text"] == "strip":
        text = content.rstrip()
        end = next((stop for stop in STOPS if text.endswith(stop)), None)
        if end is None or (end == "</s>" and text.count("<s>") >= text.count(end)):
            break
        content = text.removesuffix(end)
    return content
