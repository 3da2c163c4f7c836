"""What a row of one conversation says: turns, or the columns of a question and its answer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from expectations.witness import trees
from expectations.witness.paths import options
from expectations.witness.raw import UnreadError
from expectations.witness.said import QUESTIONS, TOOLS, Given, Said, Talk, View, opened, tools
from expectations.witness.turns import Turn, assistant, role_of, text, thinking, turns, user, weight

_ANSWERS = ("answer", "response", "solution", "output", "output_text")


def _exchange(view: View, asked: str | None, said: str | None) -> Talk:
    if asked is None or said is None:
        raise UnreadError("a question or an answer is missing")
    every = opened(view, [user(asked), assistant(said)], whole=False)
    return Talk(tuple(every), (None,) * len(every), tools(view))


def _reasoned(view: View, asked: str | None, said: str | None) -> Talk:
    """A question, and its answer with the reasoning of a column of its own."""
    one = _exchange(view, asked, said)
    reasoning, last = view.text("message_thinking"), one.turns[-1]
    last = thinking(last, reasoning, view.words) if reasoning else last
    return Talk((*one.turns[:-1], last), one.weights, one.tools)


def instruction(view: View, more: Any = None) -> str | None:
    """An instruction and its input, with an empty line between them."""
    asked = view.text("instruction")
    more = view.get("input", "context") if more is None else more or None
    if isinstance(more, list):
        told = [options(one) if isinstance(one, list) else one for one in more if one]
        more = "\n\n".join(told) if all(isinstance(one, str) for one in told) else more
        more = more or None
    if isinstance(more, dict) and all(len(key) == 1 for key in more):
        more = "\n".join(f"{key}. {text(more[key], key)}" for key in more if more[key])
    more = text(more, "input")
    return asked if more is None or asked is None else f"{asked}\n\n{more}"


def _alpaca(view: View) -> list[Said]:
    several = view.get("instances")
    if several is None:
        return [_reasoned(view, instruction(view), view.text("output", "response"))]
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
            value = [value] if isinstance(value, dict) and turn is assistant else value
            if isinstance(value, str):
                own, weights = [*own, turn(value)], [*weights, None]
            elif isinstance(value, list):
                called = value and not any({"role", "from"} & {*one} for one in value)
                listed = [{"role": "assistant", "tool_calls": value}] if called else value
                more, flags = turns(listed, view.words)
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
    return [_reasoned(view, view.text(*QUESTIONS), view.text("message_content"))]


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


# Turns in one text, as chat templates write them: the mark before each, with who speaks, what the
# text may begin with, and the ends of a turn. All up to an end is said; behind marks that are no
# control tokens, blanks around it are not. A line that begins with a blank goes on.
_WRITTEN = r"""
<\|im_start\|>(\w+)<\|im_sep\|> \s* <|im_end|> <|endoftext|>
<\|im_start\|>(\w+)(?:\n|\s*\Z) \s* <|im_end|> <|endoftext|>
<\|start_header_id\|>(\w+)<\|end_header_id\|>(?:\n\n|\s*\Z)
    \s*(<\|begin_of_text\|>)? <|eot_id|> <|end_of_text|>
<\|header_start\|>(\w+)<\|header_end\|>(?:\n\n|\s*\Z)
    \s*(<\|begin_of_text\|>)? <|eot|> <|end_of_text|>
<start_of_turn>(\w+)(?:\n|\s*\Z) \s*(<bos>)? <end_of_turn> <eos>
<\|(system|user|assistant)\|>\n? \s*(<s>\s*)? </s> <|end|> <|endoftext|>
<｜(User|Assistant)｜>(?:(?<=t｜>)</think>)?
    (<｜begin▁of▁sentence｜>(?P<system>[^<]*))? <｜end▁of▁sentence｜>
(?:<s>)?\s*\[(/?INST)\] \A </s>
\#\#\#\s(Human|Assistant): \s*
(?:<extra_id_[01]>)(System|User|Assistant)(?:\n|\Z) \s* <extra_id_1>
(?:\A\s*A\schat\sbetween\sa\scurious\s[^\n]*?\s)?(?<!\w)(USER|ASSISTANT): \s* </s>
(?:\A\s*|\n\n)(Human|Assistant): \A
""".strip()
_SPOKEN = {"role": {"INST": "user", "/INST": "assistant"}}
_BETWEEN = re.compile(r"(?:\A|</s>)\s*<s>")
_SYS = re.compile(r"<<SYS>>\n(.*?)\n<</SYS>>\n\n", re.DOTALL)
_MAY = re.compile(
    r"\s*(?:<\||<s>|<bos>|<start_of_turn>|<\uff5c|<extra_id|\[INST\]|### |to=|Below is an|A chat "
    r"|[#*\s]*(?:H(?:uman|UMAN)|U(?:ser|SER)|S(?:ystem|YSTEM)|用户|系统)[*]*[:：]"
    r"|(?i:human|user|prompter):|<(?i:human|user|usr|sys|system)>"
    r"|(?:[^\n]*\n+)?\[\|?(?i:human|user|prompter|system|ai|assistant))"
)
_ALPACA = re.compile(
    r"\s*(?:Below is an instruction that describes a task[^\n]*\n+)?### Instruction:[ \t]*\n(.*?)"
    r"(?:\n\n### Input:[ \t]*\n(.*?))?\n?\n### Response:(?:[ \t]*(?:\n|\Z)| ?)(.*)",
    re.DOTALL,
)


def inside(text: Any) -> tuple[list[Turn], Callable[[str], str]] | None:
    """The turns that a chat template has written into a text, and what a text says that goes on
    behind them; None where it is a text like any other."""
    if not isinstance(text, str) or not _MAY.match(text):
        return None
    if (task := _ALPACA.fullmatch(text)) and text.count("### ") == 2 + (task[2] is not None):
        more = f"\n\n{task[2]}" if task[2] else ""
        return [user(task[1] + more), assistant(task[3])], str
    for mark, begin, *ends in map(str.split, re.split(r"\n(?! )", _WRITTEN)):
        before, *pieces = re.split(mark, text)
        begun = re.fullmatch(begin, before)
        if not pieces or not begun:
            continue
        said = partial(_said, mark, ends)
        roles = [role_of({"role": x}, _SPOKEN) for x in pieces[::2]]
        found = [*map(said, pieces[1::2])]
        system = begun.groupdict().get("system") or ""
        if mark[0] != "<":
            system, found[0] = _told(found[0])
        if not _is_unsure(text, mark, ends, roles, (found, pieces[1::2])):
            own = [{"role": a, "content": b} for a, b in zip(roles, found, strict=True)]
            own = own[mark[0] != "<" and own[0] == {"role": "system", "content": ""} :]
            before_it = [{"role": "system", "content": system}] if system else []
            return [*before_it, *own], partial(_behind, mark, said, text)
        break
    raise UnreadError("a text that may carry a template of another kind")


def _told(first: str) -> tuple[str, str]:
    """A system text that stands in the first turn, and what else that says."""
    told = _SYS.match(first)
    system = told[1].strip() if told else ""
    return (system, first[told.end() :].strip()) if told and system else ("", first)


def _is_unsure(
    text: str, mark: str, ends: Sequence[str], roles: Sequence[str], both: Sequence[Sequence[str]]
) -> bool:
    """Whether turns in a text may be others than were found; ``both``: these, and the pieces of the
    text."""
    found, pieces = both
    strange = (*ends, "<|im_start|>", "<|eo", "<<SYS>>", "<｜")
    unsure = [one in "".join(found) for one in strange]
    unsure.append("<extra_id_" in "".join(pieces))
    unsure.append(not found[-1] and (roles[-1] != "assistant" or bool(pieces[-1].strip())))
    if mark[0] == "<":  # each has an end but the last and some questions, and roles may be any
        each = zip(roles[:-1], found, pieces, strict=False)
        unsure += [role != "user" or "｜" not in mark for role, one, piece in each if one == piece]
        unsure.append("user" not in roles or "tool" in roles or "call" in roles)
        unsure.append(roles[0] == "assistant")
        return any(unsure)
    roles = roles[roles[0] == "system" :]
    unsure += [one.count("</s>") > n % 2 for n, one in enumerate(pieces)]
    unsure += ["<s>" in _BETWEEN.sub("", text), "FUNCTION RESPONSE:" in text]
    unsure.append("USER" in mark and re.search(r"\s</s>", text) is not None)
    unsure.append(not roles or roles != ["user", "assistant"] * (len(roles) // 2))
    return any(unsure)


def _said(mark: str, ends: Sequence[str], text: str) -> str:
    """A text without the ends behind it, of the turn and of the text."""
    for _ in range(2):
        cut = text.rstrip()
        end = next((end for end in ends if cut.endswith(end)), "")
        text = cut.removesuffix(end) if end else text
    return text if mark[0] == "<" else text.strip()


def _behind(mark: str, said: Callable[[str], str], asked: str, text: str) -> str:
    """What an answer says that stands behind such a text."""
    whole = text[:1] != "\n" or asked.endswith(("assistant\n", "model\n", "\n\n"))
    if re.search(mark, text) or not (whole or mark[0] != "<"):
        raise UnreadError("an answer with a template, or to a prompt that was cut in one")
    return said(text)


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
        if turn["role"] == "tool" and (turn["content"] or "").lstrip().startswith("<"):
            raise UnreadError("a tool's result that may carry a template")
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
