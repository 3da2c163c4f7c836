"""Our chat templates print what the vendors' print, and theirs print with us what they print.

Peers' packages carry copies of the vendors' templates; another, of sources, has those of seventy
models (``make test-slow`` fetches it).
"""

import datetime
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import peers
import pytest
from conversations import FAMILIES, TABLE, Speech, conversations
from jinja2 import TemplateError
from support import WIDE, few, sweep, table
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from stages.chat_template.compile import Compiler
from stages.chat_template.printed_fields import EVERY, Printed, printed_fields
from stages.chat_template.reasoning import place, spelled_by
from stages.chat_template.segments import controls_pattern
from stages.chat_template.template import Template
from stages.chat_template.trained_spans import Chat
from stages.chat_template.turn_ends import End, Ends
from stages.contract import Message
from stages.errors import RowError
from stages.tokenizers.profiles import all_profiles

PACKAGES = {
    "trl": ("trl==1.16.0", "trl/chat_templates"),
    "axolotl": ("axolotl==0.19.0", "axolotl/utils/chat_templates/templates"),
}
DATE = "26 Jul 2024"
Messages = list[dict[str, Any]]


def printer(source: str, bos: str | None, eos: str) -> Callable[..., str]:
    """How Hugging Face renders a template."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"x": 0}, "x")), bos_token=bos, eos_token=eos
    )

    def show(messages: Messages, tools: Any, **variables: Any) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages, tools=tools, chat_template=source, tokenize=False, **variables
            )
        )

    return show


def printers(name: str) -> tuple[Callable[..., str], ...]:
    """Ours, and the vendor's, which a peer's package has."""
    profile = all_profiles()[name]
    peer, file = TABLE["vendors"][name]
    package, folder = PACKAGES[peer]
    sources = profile.chat_template, peers.member(package, f"{folder}/{file}.jinja")
    # The vendor's tokenizer of Phi-3 ends whole conversations otherwise than turns.
    eos = "<|endoftext|>" if name.startswith("phi-3") else profile.eos_token
    return tuple(printer(one, profile.bos_token, eos) for one in sources)


def prompts(messages: Messages) -> list[Messages]:
    """What inference would feed: the turns up to each question."""
    return [messages[: i + 1] for i, turn in enumerate(messages) if turn["role"] == "user"]


def rows(speech: Speech, count: int = 40) -> list[dict[str, Any]]:
    """Conversations; whether control text is in them makes no difference to a rendering."""
    return list(conversations(7, count, speech))


APART = ("mistral-7b-instruct-v0.3", "mistral-nemo-instruct-2407")
DISTILLED = "deepseek-r1-distill-qwen-7b"
WHOLE = [name for name in FAMILIES if name in TABLE["vendors"] and name != DISTILLED]


@pytest.mark.parametrize("name", few(WHOLE, 5))
def test_a_template_prints_what_the_vendors_does(name):
    """Whole conversations and every prompt in them, tools and reasoning included.

    The copy that there is of Qwen2's knows no default system text, so a system text is given; those
    of Mistral's lose it in whole conversations, print blanks around answers otherwise than
    mistral-common does, and quotes in signatures as they are, which is not JSON.
    """
    ours, theirs = printers(name)
    for row in rows(FAMILIES[name]):
        messages, tools = row["messages"], row["tools"]
        with_system = messages[0]["role"] == "system"
        if name == "qwen2-1.5b" and not with_system:
            messages.insert(0, {"role": "system", "content": "be brief"})
        if name in APART:
            tools = json.loads(json.dumps(tools).replace('\\"that\\"', "that"))
            for turn in messages:
                if turn["role"] == "assistant" and turn["content"]:
                    turn["content"] = turn["content"].strip()
        shown = [(asked, {"add_generation_prompt": True}) for asked in prompts(messages)]
        shown += [(messages, {})] * (name not in APART or not with_system)
        for said, told in shown:
            told["date_string"] = DATE
            assert ours(said, tools, **told) == theirs(said, tools, **told)


def test_deepseek_prints_the_vendors_prompts():
    """Every prompt is the vendor's, and an example is its prompt with a whole answer behind it."""
    ours, theirs = printers(DISTILLED)
    end = all_profiles()[DISTILLED].end_of_turn
    for row in rows(FAMILIES[DISTILLED]):
        for asked in prompts(row["messages"]):
            prompt = theirs(asked, None, add_generation_prompt=True)
            assert ours(asked, None, add_generation_prompt=True) == prompt
            answer = row["messages"][len(asked)]
            whole = ours([*asked, answer], None)
            assert whole.startswith(prompt)
            assert whole.endswith(end)
            said = answer["content"].rpartition("</think>")[2].lstrip("\n")
            assert whole.removesuffix(end).endswith(said)
            assert whole[len(prompt) :].count("</think>") == 1


@pytest.mark.parametrize("thinking", [False, True])
def test_deepseek_v4_prints_what_its_encoder_does(thinking):
    """As llama.cpp's copy of it has it: every prompt and every example, in both modes.

    That copy leaves out the blank line before tools where there is no system text.
    """
    profile = all_profiles()["deepseek-v4-flash"]
    copy = peers.shipped_template("deepseek-ai-DeepSeek-V4-Flash-0731")
    ends = profile.bos_token, profile.eos_token
    ours, theirs = (printer(one, *ends) for one in (profile.chat_template, copy))
    for row in rows(Speech(("x",))):
        if row["messages"][0]["role"] != "system":
            row["messages"].insert(0, {"role": "system", "content": "be brief"})
        for turn in row["messages"] if thinking else ():
            if turn["role"] == "assistant":
                turn["reasoning_content"] = turn["content"] or "why"
        for end in range(1, len(row["messages"]) + 1):
            asked = row["messages"][end - 1]["role"] != "assistant"
            told = {"add_generation_prompt": asked, "thinking": thinking}
            shown = row["messages"][:end], row["tools"]
            assert ours(*shown, **told) == theirs(*shown, **told)


_TYPES: list[dict[str, Any]] = table("argument_types.jsonl")
_TYPES += [
    {"type": "array", "items": _TYPES[-1]},
    {"type": "array", "items": {"type": "object", "properties": {"c" * 60: {}}}},
    {"oneOf": [{**_TYPES[1], "default": 0}, {"type": "object"}], "default": "a"},
]


def test_gpt_oss_prints_what_the_vendors_does():
    """Conversations with reasoning, and tools of every type; the vendor's takes no null for a text,
    and calls reasoning thinking."""
    copy = peers.member("trl==1.16.0", "trl/chat_templates/gptoss.jinja")
    own = all_profiles()["gpt-oss-20b"].chat_template
    ours, theirs = (printer(source, None, "<|return|>") for source in (own, copy))
    taken = {f"p{i}": one for i, one in enumerate(_TYPES)}
    for number, row in enumerate(rows(Speech(("x",), tools="one", thinking=True), 60)):
        needed = {"properties": taken, "required": [f"p{number % len(taken)}"]}
        given = [needed, {"type": "object", "properties": {}}, None][number % 3]
        signature = {"name": "look", "description": "Looks", "parameters": given}
        tools = row["tools"] and [{"type": "function", "function": signature}] * 2
        named = []
        for turn in row["messages"]:
            turn["content"] = turn["content"] or ""
            thought = {"thinking": turn["reasoning_content"]} if "reasoning_content" in turn else {}
            named.append({k: v for k, v in turn.items() if k != "reasoning_content"} | thought)
        for end in range(1, len(named) + 1):
            told = {"add_generation_prompt": named[end - 1]["role"] != "assistant"}
            shown = ours(row["messages"][:end], tools, **told)
            assert shown == theirs(named[:end], tools, **told)


def test_the_math_models_default_to_their_system_text():
    """Qwen2.5-Math differs from Qwen2.5 in the default system text alone."""
    math, plain = (
        printer(all_profiles()[f"qwen2.5-{kind}7b"].chat_template, None, "<|im_end|>")
        for kind in ("math-", "")
    )
    asked = [{"role": "user", "content": "1+1"}]
    boxed = "Please reason step by step, and put your final answer within \\boxed{}."
    system = f"<|im_start|>system\n{boxed}<|im_end|>\n"
    assert math(asked, None) == f"{system}<|im_start|>user\n1+1<|im_end|>\n"
    given = [{"role": "system", "content": "s"}, *asked]
    assert math(given, None) == plain(given, None)


# Dialogues of every kind, with the templates of many vendors.
#
# Each text, name and value in a dialogue holds a word of its own, so what is lost is seen.

VENDORS = sorted(Path(os.environ.get("POSTTRAIN_TEMPLATES", "absent")).glob("*.jinja"))
TOKENS = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
_ASKS = {"q": {"type": "string", "description": "what", "enum": ["a", "b"]}}
_ASKED = {"type": "object", "properties": _ASKS, "required": ["q"]}
SIGNATURES = [
    {
        "type": "function",
        "function": {"name": name, "description": "Finds <it>.", "parameters": _ASKED},
    }
    for name in ("lookup", "search")
]
ODD = ("", " ", "\n\n", "a</think>b ", "{{ x }} & '\"\\", "https://a.b/c\n", "\t<br>\u2028")


class Clock(datetime.datetime):
    """What a template that asks for the time is told."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "Clock":
        return cls(2026, 3, 4)


KINDS = [
    kind
    for kind in itertools.product(
        ("none", "first", "middle"),  # the system text
        range(1, 7),  # turns of the user and answers
        ("none", "field", "text"),  # reasoning
        (0, 1, 2),  # calls at once
        ("", "some", None),  # what is said beside them
        (None, SIGNATURES),
        (dict, str),  # of arguments
    )
    if kind[3] or kind[4:7:2] == ("", dict)  # what differs where there are calls
]


class Dialogue:
    """A conversation of one of ``KINDS``."""

    def __init__(self, kind: Any, rng: random.Random) -> None:
        self.system, self.count, self.reasoning, self.calls, self.beside, self.tools, self.of = kind
        self._rng, self._words = rng, itertools.count()

    def _text(self) -> str:
        return f"{self._rng.choice(ODD)}w{next(self._words)}z{self._rng.choice(ODD)}"

    def _answer(self, content: str | None, **fields: Any) -> Message:
        if self.reasoning == "field":
            fields["reasoning_content"] = self._text()
        elif self.reasoning == "text" and content:
            content = f"<think>\nhm\n</think>\n\n{content}"
        return Message("assistant", content, fields or None, True)

    def _exchange(self) -> Iterator[Message]:
        calls = []
        for number, signature in enumerate(SIGNATURES[: self.calls]):
            given = {"q": self._text(), "n": [1, 2.5], "deep": {"on": True, "off": None}}
            told = given if self.of is dict else json.dumps(given)
            function = {"name": signature["function"]["name"], "arguments": told}
            calls.append({"id": f"call{number:05d}", "type": "function", "function": function})
        if calls:
            yield self._answer(self.beside and self._text(), tool_calls=calls)
        for call in calls:
            named = {"tool_call_id": call["id"], "name": call["function"]["name"]}
            yield Message("tool", self._text(), named)
        yield self._answer(self._text())

    def alike(self, turns: list[Message]) -> list[Message]:
        """Turns with other texts and all else the same."""
        return [replace(turn, content=turn.content and self._text()) for turn in turns]

    def turns(self) -> list[Message]:
        """Its turns; all answers are trained."""
        found = [Message("system", self._text())] if self.system == "first" else []
        for number in range(self.count):
            if self.system == "middle" and number == 2:
                found.append(Message("system", self._text()))
            found += self._exchange() if number % 2 else [Message("user", self._text())]
        return found


def dialogues(path: Path) -> Iterator[Dialogue]:
    """Some dialogues for a template, others for another; all with ``WIDE=1``."""
    rng = random.Random(path.name)
    for kind in KINDS if WIDE else rng.sample(KINDS, 60):
        yield Dialogue(kind, rng)


def shown(source: str, turns: list[Message]) -> list[dict[str, Any]]:
    """Turns as a template gets them, with reasoning under its own name for it."""
    if name := spelled_by(printed_fields(source)):
        place(turns, name)
    return [turn.seen() for turn in turns]


def told(show: Callable[..., str], *args: Any, **variables: Any) -> str | None:
    """What is printed; None where that is refused."""
    try:
        return show(*args, **variables)
    except (RowError, TemplateError, LookupError, TypeError, ValueError, RecursionError):
        return None


@sweep(10)
@pytest.mark.parametrize("path", VENDORS, ids=lambda path: path.stem)
def test_a_vendors_template_prints_what_transformers_prints(path, monkeypatch):
    """Character for character, or both refuse: in the sandbox, arguments as objects and as JSON."""
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    source = path.read_text("utf-8")
    theirs = printer(source, *TOKENS.values())
    ours = Template(source, f"{Clock.now():%Y-%m-%d}", **TOKENS).render
    for dialogue in dialogues(path):
        seen = shown(source, dialogue.turns())
        for asked in (False, True):
            text = told(ours, seen, dialogue.tools, add_generation_prompt=asked)
            assert text == told(theirs, seen, dialogue.tools, add_generation_prompt=asked)


def words(turns: list[dict[str, Any]]) -> set[str]:
    """The words of all texts, calls and reasoning, but for texts with reasoning in them."""
    said = [
        {**turn, "content": "" if turn["role"] == "assistant" else turn["content"]}
        if "</think>" in turn.get("content", "")
        else turn
        for turn in turns
    ]
    return set(re.findall(r"w\d+z", json.dumps(said)))


@sweep(10)
@pytest.mark.parametrize("path", VENDORS, ids=lambda path: path.stem)
def test_a_vendors_template_is_compiled_to_what_it_prints_and_loses_nothing(path):
    """Rows of one shape, by its program and one by one. Each word of a row that is not refused is
    printed, and a field that is said to be unread changes nothing."""
    source = path.read_text("utf-8")
    template = Template(source, f"{Clock.now():%Y-%m-%d}", **TOKENS)
    end = End(token="<EOS>")
    compiler = Compiler(template, controls_pattern(TOKENS.values()), Ends(end, end), [{}])
    fields = {"role", "content", *printed_fields(source)}
    for dialogue in dialogues(path):
        rows = [first := dialogue.turns(), dialogue.alike(first), dialogue.alike(first)]
        seen = [shown(source, turns) for turns in rows]
        plain = [[replace(turn, trained=False) for turn in turns] for turns in rows]
        try:
            program = compiler.compile(plain[0], dialogue.tools)
        except RowError:
            continue
        for turns, given, untrained in zip(rows, seen, plain, strict=True):
            contents = [turn.content for turn in turns]
            text = told(template.render, given, dialogue.tools)
            if program and program.fits(contents):
                assert "".join(program.fill(contents)) == text
            try:
                segments = compiler.segments(untrained, dialogue.tools)
                assert "".join(piece for piece, _ in segments) == text
                Printed(template).require(Chat(turns, dialogue.tools, placed=False), text)
            except RowError:
                continue
            assert words(given) <= set(re.findall(r"w\d+z", text))
            if EVERY not in fields:
                read = [{k: v for k, v in turn.items() if k in fields} for turn in given]
                assert template.render(read, dialogue.tools) == text
