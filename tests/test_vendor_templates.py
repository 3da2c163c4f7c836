"""Our chat templates print what the vendors' print; peers' packages carry copies of theirs."""

import json
import random
from collections.abc import Callable
from typing import Any

import peers
import pytest
from conversations import Speech, conversation
from support import few
from test_families import FAMILIES, TABLE
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

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
    return tuple(printer(one, profile.bos_token, profile.eos_token) for one in sources)


def prompts(messages: Messages) -> list[Messages]:
    """What inference would feed: the turns up to each question."""
    return [messages[: i + 1] for i, turn in enumerate(messages) if turn["role"] == "user"]


def rows(name: str, count: int = 40) -> list[dict[str, Any]]:
    """Conversations; whether control text is in them makes no difference to a rendering."""
    rng = random.Random(7)
    return [conversation(rng, FAMILIES[name]) for _ in range(count)]


APART = ("mistral-7b-instruct-v0.3", "mistral-nemo-instruct-2407")
DISTILLED = "deepseek-r1-distill-qwen-7b"
WHOLE = [n for n in FAMILIES if n in TABLE["vendors"] and n not in (*APART, DISTILLED)]


@pytest.mark.parametrize("name", few(WHOLE, 4))
def test_a_template_prints_what_the_vendors_does(name: str) -> None:
    """Whole conversations and every prompt in them, tools and reasoning included.

    The copy that there is of Qwen2's knows no default system text, so a system text is given.
    """
    ours, theirs = printers(name)
    for row in rows(name):
        messages, tools = row["messages"], row["tools"]
        if name == "qwen2-1.5b" and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": "be brief"})
        assert ours(messages, tools, date_string=DATE) == theirs(messages, tools, date_string=DATE)
        for asked in prompts(messages):
            told = {"add_generation_prompt": True, "date_string": DATE}
            assert ours(asked, tools, **told) == theirs(asked, tools, **told)


@pytest.mark.parametrize("name", few(APART, 1))
def test_mistral_prints_what_the_vendors_does(name: str) -> None:
    """Every prompt; and whole conversations without a system text, which theirs loses there.

    Answers are stripped first: of blanks around one the copies and mistral-common differ. The
    signature holds no quotes: the copies print them as they are, which is not JSON.
    """
    ours, theirs = printers(name)
    for row in rows(name):
        messages = row["messages"]
        tools = json.loads(json.dumps(row["tools"]).replace('\\"that\\"', "that"))
        for turn in messages:
            if turn["role"] == "assistant" and turn["content"]:
                turn["content"] = turn["content"].strip()
        if messages[0]["role"] != "system":
            assert ours(messages, tools) == theirs(messages, tools)
        for asked in prompts(messages):
            assert ours(asked, tools) == theirs(asked, tools)


def test_deepseek_prints_the_vendors_prompts() -> None:
    """Every prompt is the vendor's, and an example is its prompt with a whole answer behind it."""
    ours, theirs = printers(DISTILLED)
    end = all_profiles()[DISTILLED].end_of_turn
    for row in rows(DISTILLED):
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
def test_deepseek_v4_prints_what_its_encoder_does(thinking: bool) -> None:
    """As llama.cpp's copy of it has it: every prompt and every example, in both modes.

    That copy leaves out the blank line before tools where there is no system text.
    """
    profile = all_profiles()["deepseek-v4-flash"]
    copy = peers.shipped_template("deepseek-ai-DeepSeek-V4-Flash-0731")
    ours, theirs = (
        printer(one, profile.bos_token, profile.eos_token) for one in (profile.chat_template, copy)
    )
    rng = random.Random(7)
    for _ in range(40):
        row = conversation(rng, Speech(("x",)))
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


_TYPES: list[dict[str, Any]] = [
    {},
    {"type": "string", "enum": ["a", "b"], "default": "a", "description": "Which"},
    {"type": "string", "nullable": True, "default": None},
    {"type": "integer", "default": 3},
    {"type": "boolean"},
    {"type": ["object", "null"]},
    {"type": ["string"]},
    {"type": "object"},
    {"type": "array", "nullable": True},
    {"type": "array", "items": {"type": "number"}, "nullable": True, "default": [1]},
    {"type": "array", "items": {"type": ["object", "object"]}},
    {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {}}, "required": ["b"]},
]
_TYPES += [
    {"type": "array", "items": _TYPES[-1]},
    {"type": "array", "items": {"type": "object", "properties": {"c" * 60: {}}}},
    {"oneOf": [{**_TYPES[1], "default": 0}, {"type": "object"}], "default": "a"},
]


def test_gpt_oss_prints_what_the_vendors_does() -> None:
    """Conversations with reasoning, and tools of every type; the vendor's takes no null for a text,
    and calls reasoning thinking."""
    ours, theirs = (
        printer(source, None, "<|return|>")
        for source in (
            all_profiles()["gpt-oss-20b"].chat_template,
            peers.member("trl==1.16.0", "trl/chat_templates/gptoss.jinja"),
        )
    )
    taken = {f"p{i}": one for i, one in enumerate(_TYPES)}
    rng = random.Random(7)
    for number in range(60):
        row = conversation(rng, Speech(("x",), tools="one", thinking=True))
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


def test_the_math_models_default_to_their_system_text() -> None:
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
