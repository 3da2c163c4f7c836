"""What a row of one conversation says: turns, or the columns of a question and its answer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from expectations.witness import trees
from expectations.witness.raw import UnreadError
from expectations.witness.said import QUESTIONS, TOOLS, Given, Said, Talk, View, opened, tools
from expectations.witness.turns import (
    Turn,
    assistant,
    inside,
    role_of,
    text,
    thinking,
    turns,
    user,
    weight,
)

_ANSWERS = ("answer", "response", "solution", "output", "output_text")


def _exchange(view: View, asked: str | None, said: str | None) -> Talk:
    if asked is None or said is None:
        raise UnreadError("a question or an answer is missing")
    every = opened(view, [user(asked), assistant(said)], whole=False)
    return Talk(tuple(every), (None,) * len(every), tools(view))


def instruction(view: View, more: Any = None) -> str | None:
    """An instruction and its input, with an empty line between them."""
    asked = view.text("instruction")
    more = view.get("input", "context") if more is None else more or None
    if isinstance(more, list) and all(isinstance(one, str) for one in more):
        more = "\n\n".join(more)
    more = text(more, "input")
    return asked if more is None or asked is None else f"{asked}\n\n{more}"


def _alpaca(view: View) -> list[Said]:
    several = view.get("instances")
    if several is None:
        return [_exchange(view, instruction(view), view.text("output", "response"))]
    if not all(isinstance(one, dict) for one in several):
        raise UnreadError("instances that are no objects")
    each = [(instruction(view, one.get("input") or ""), one.get("output")) for one in several]
    return [_exchange(view, asked, text(said, "output")) for asked, said in each]


def _talk(*names: str) -> Callable[[View], list[Said]]:
    def read(view: View) -> list[Said]:
        value, given, mask = view.get(*names), view.get("turn_weights"), view.get("mask")
        if given is not None:
            value = [one | {"weight": w} for one, w in zip(value, given, strict=True)]
        own, weights = turns(value, view.words)
        if mask is not None:
            role = role_of({"role": mask}, view.words)
            both = zip(own, weights, strict=True)
            weights = [0.0 if turn["role"] == role else w for turn, w in both]
        if (reasoning := view.text("message_thinking")) is not None:
            own = [*own[:-1], thinking(own[-1], reasoning, view.words)]
        every = opened(view, own)
        return [Talk(tuple(every), (*[None] * (len(every) - len(own)), *weights), tools(view))]

    return read


def _answered(asked: Sequence[str], said: Sequence[str]) -> Callable[[View], list[Said]]:
    def read(view: View) -> list[Said]:
        question, answer = view.get(*asked), view.get(*said)
        own: list[Turn] = []
        weights: list[float | None] = []
        for value, turn in ((question, user), (answer, assistant)):
            if isinstance(value, str):
                own, weights = [*own, turn(value)], [*weights, None]
            elif isinstance(value, list):
                more, flags = turns(value, view.words)
                own, weights = own + more, weights + flags
            else:
                raise UnreadError("a question or an answer is missing")
        whole = isinstance(question, list)
        count = len(turns(question, view.words)[0]) if whole else 1
        every = [*opened(view, own[:count], whole), *own[count:]]
        return [Talk(tuple(every), (*[None] * (len(every) - len(own)), *weights), tools(view))]

    return read


def _bare(view: View) -> list[Said]:
    said = view.text("text")
    if said is not None and view.words["already_templated"] and (found := inside(said)):
        every = opened(view, found[0], whole=False)
        return [Talk(tuple(every), (None,) * len(every), tools(view))]
    if said is None or view.get(*TOOLS) is not None:
        raise UnreadError("a text with tools")
    return [Talk(({"role": "text", "content": said},), (None,))]


def _thought(view: View) -> list[Said]:
    one = _exchange(view, view.text(*QUESTIONS), view.text("message_content"))
    reasoning, last = view.text("message_thinking"), one.turns[-1]
    last = thinking(last, reasoning, view.words) if reasoning else last
    return [Talk((*one.turns[:-1], last), one.weights, one.tools)]


def _exchanges(view: View) -> list[Said]:
    asked = ("human", "user", "input", "question", "query", "prompt", "instruction")
    said = ("assistant", "output", "answer", "response", "gpt", "bot", "model", "completion")
    own: list[Turn] = []
    weights: list[float | None] = []
    listed = ("conversation", "conversations", "messages", "turns", "dialogue", "exchanges", "qa")
    for one in view.get(*listed) or ():
        if not isinstance(one, dict):
            raise UnreadError("exchanges that are no objects")
        if one.get("need_eos_token") is False:
            raise UnreadError("an answer that goes on")
        inside = View(one, "", view.words)
        if (system := inside.text("system")) is not None:
            own, weights = [*own, {"role": "system", "content": system}], [*weights, None]
        texts = [inside.text(*asked), inside.text(*said)]
        if None in texts:
            raise UnreadError("a question or an answer is missing")
        own += [user(str(texts[0])), assistant(str(texts[1]))]
        weights += [None, weight(one)]
    every = opened(view, own)
    before = [None] * (len(every) - len(own))
    return [Talk(tuple(every), (*before, *weights), tools(view))]


_MASKS = ("loss_mask", "assistant_masks", "assistant_mask", "completion_mask", "train_mask")


def _ids(view: View) -> list[Said]:
    """Token ids, and the labels or the mask beside them, without padding."""
    ids, labels, real = (view.get(name) for name in ("input_ids", "labels", "attention_mask"))
    if labels is None:
        masks = [view.get(name) for name in _MASKS]
        mask = next(one for one in masks if one is not None)
        labels = [one if kept else -100 for one, kept in zip(ids, mask, strict=True)]
    own = [i for i in range(len(ids)) if real is None or real[i]]
    return [Given(tuple(ids[i] for i in own), tuple(labels[i] for i in own))]


TALKS: dict[str, Callable[[View], list[Said]]] = {
    "openai": _talk("messages"),
    "sharegpt": _talk("conversations", "conversation", "messages"),
    "alpaca": _alpaca,
    "contents": _talk("contents"),
    "exchange_list": _exchanges,
    "message_paths": trees.paths,
    "message_thinking": _thought,
    "pretokenized": _ids,
    "prompt_completion": _answered(("prompt",), ("completion",)),
    "query_response": _answered(QUESTIONS, _ANSWERS),
    "text": _bare,
}


def each(said: Talk, words: dict[str, Any]) -> list[Talk]:
    """The conversations that one becomes, with the weight of each turn decided."""
    answers = [i for i, turn in enumerate(said.turns) if turn["role"] == "assistant"]
    wanted = {"assistant": {*answers}, "last": {*answers[-1:]}, "all": {*range(len(said.turns))}}[
        words["train_on"]
    ]
    weights = [
        float(i in wanted) if weight is None else weight for i, weight in enumerate(said.weights)
    ]
    whole = replace(said, weights=tuple(weights))
    if not words["per_turn"] or said.turns[0]["role"] == "text":
        return [whole]
    return [
        Talk(said.turns[: i + 1], (*[0.0] * i, weights[i]), said.tools)
        for i in answers
        if weights[i]
    ]


def unfolded(
    own: Sequence[Turn], weights: Sequence[float | None]
) -> tuple[list[Turn], list[float | None]]:
    """Turns with those that a chat template has written into the text of a question."""
    out: list[Turn] = []
    of: list[float | None] = []
    behind: Callable[[str], str] | None = None
    for turn, flag in zip(own, weights, strict=True):
        more, asks, answers = [turn], turn["role"] == "user", turn["role"] == "assistant"
        found = inside(turn["content"]) if asks or answers else None
        if answers and behind is not None:
            more = [{**turn, "content": behind(turn["content"] or "")}]
        elif answers and found is not None:
            raise UnreadError("an answer that carries a template")
        behind = None
        if asks and found is not None:
            more, behind = found
            if more[-1]["role"] == "assistant" and more.pop()["content"]:
                raise UnreadError("a prompt in which an answer begins")
        if out and more[0]["role"] == "system":
            if out != more[:1]:
                raise UnreadError("two system texts")
            out, of = [], []
        out += more
        of += [*[None] * (len(more) - 1), flag]
    return out, of
