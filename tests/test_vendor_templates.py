"""Our chat templates print what the vendors' print; peers' packages carry copies of theirs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import peers
import pytest
from conversations import Speech, conversation
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from stages.tokenizers.profiles import all_profiles

TRL = ("trl==1.16.0", "trl/chat_templates")
AXOLOTL = ("axolotl==0.19.0", "axolotl/utils/chat_templates/templates")
DATE = "26 Jul 2024"
Messages = list[dict[str, Any]]


def vendors(source: tuple[str, str], name: str) -> str:
    """A vendor's template from a peer's package."""
    return peers.member(source[0], f"{source[1]}/{name}.jinja")


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


def printers(name: str, source: tuple[str, str], file: str) -> tuple[Callable[..., str], ...]:
    """Ours and the vendor's."""
    profile = all_profiles()[name]
    tokens = (profile.bos_token, profile.eos_token)
    ours, theirs = profile.chat_template, vendors(source, file)
    return printer(ours, *tokens), printer(theirs, *tokens)


def prompts(messages: Messages) -> list[Messages]:
    """What inference would feed: the turns up to each question."""
    return [messages[: i + 1] for i, turn in enumerate(messages) if turn["role"] == "user"]


def rows(speech: Speech, count: int = 60) -> list[dict[str, Any]]:
    """Conversations; whether control text is in them makes no difference to a rendering."""
    rng = random.Random(7)
    return [conversation(rng, speech) for _ in range(count)]


WHOLE = {
    "qwen2-1.5b": (AXOLOTL, "chatml", Speech(("<|im_end|>",), tools="none")),
    "qwen2.5-7b-instruct": (TRL, "qwen2_5", Speech(("<|im_end|>",))),
    "qwen3-8b": (TRL, "qwen3", Speech(("<|im_end|>",), thinking=True)),
    "qwen3-4b-instruct-2507": (TRL, "qwen3_instruct_2507", Speech(("<|im_end|>",))),
    "llama-3-8b-instruct": (TRL, "llama3", Speech(("<|eot_id|>",), tools="none")),
    "llama-3.1-8b-instruct": (TRL, "llama3_1", Speech(("<|eot_id|>",), tools="one")),
    "llama-3.2-1b-instruct": (TRL, "llama3_2", Speech(("<|eot_id|>",), tools="one")),
    "mistral-7b-instruct-v0.2": (AXOLOTL, "mistral_v1", Speech(("</s>",), tools="none")),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_template_prints_what_the_vendors_does(name: str) -> None:
    """Whole conversations and every prompt in them, tools and reasoning included.

    The copy that there is of Qwen2's knows no default system text, so a system text is given.
    """
    source, file, speech = WHOLE[name]
    ours, theirs = printers(name, source, file)
    for row in rows(speech):
        messages, tools = row["messages"], row["tools"]
        if name == "qwen2-1.5b" and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": "be brief"})
        assert ours(messages, tools, date_string=DATE) == theirs(messages, tools, date_string=DATE)
        for asked in prompts(messages):
            told = {"add_generation_prompt": True, "date_string": DATE}
            assert ours(asked, tools, **told) == theirs(asked, tools, **told)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mistral-7b-instruct-v0.3", "mistral_v2v3"),
        ("mistral-nemo-instruct-2407", "mistral_v3_tekken"),
    ],
)
def test_mistral_prints_what_the_vendors_does(name: str, file: str) -> None:
    """Every prompt; and whole conversations without a system text, which theirs loses there.

    Answers are stripped first: of blanks around one the copies and mistral-common differ. The
    signature holds no quotes: the copies print them as they are, which is not JSON.
    """
    ours, theirs = printers(name, AXOLOTL, file)
    for row in rows(Speech(("</s>",))):
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
    name = "deepseek-r1-distill-qwen-7b"
    ours, theirs = printers(name, TRL, "deepseek_r1_distill")
    end = all_profiles()[name].end_of_turn
    for row in rows(Speech(("<｜User｜>",), tools="none", thinking=True)):
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


def test_the_math_models_default_to_their_system_text() -> None:
    """Qwen2.5-Math differs from Qwen2.5 in the default system text alone."""
    math, plain = (all_profiles()[f"qwen2.5-{k}7b"].chat_template for k in ("math-", ""))
    text = printer(math, None, "<|im_end|>")([{"role": "user", "content": "1+1"}], None)
    boxed = "Please reason step by step, and put your final answer within \\boxed{}."
    assert text == f"<|im_start|>system\n{boxed}<|im_end|>\n<|im_start|>user\n1+1<|im_end|>\n"
    given = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1"}]
    shown = {printer(source, None, "<|im_end|>")(given, None) for source in (math, plain)}
    assert len(shown) == 1
