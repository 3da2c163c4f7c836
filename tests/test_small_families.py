"""Chat families whose vocabulary no package carries, on small tokenizers in their manner.

What is proved here is how such a tokenizer is treated (its special tokens, flags, normalizer and
byte fallback), and that our templates print what the vendors' do. The vendors' ids are declared in
the profiles and checked whenever one of their tokenizers is at hand.
"""

import itertools
import random

import peers
import pytest
from encoding import encoded, encoding
from rows import normalizing, turns
from small_tokenizers import SMALL, bound
from support import table
from transformers import AutoTokenizer

from pipeline.serving.serving import write_tokenizer
from stages import columns, contract, errors, profile
from stages.chat_template import render, template
from stages.tokenizers.profiles import all_profiles

CHATS = tuple(name for name in SMALL if all_profiles()[name].pair is None)
VENDORS = table("families.toml")["vendors"]
TEXTS = tuple(table("odd_texts.toml")["small_families"])


def examples(model: profile.TargetModel, rows: list[contract.Row]) -> list[contract.Row]:
    return list(encoded(normalizing("sft", "openai"), encoding("sft", model), rows).to_pylist())


def conversations(
    count: int, texts: tuple[str, ...], system: bool, seed: int = 11
) -> list[contract.Row]:
    """Seeded chats of one to eight turns that every family takes."""
    random_ = random.Random(seed)
    made = []
    for _ in range(count):
        opening = ("system",) if system and random_.random() < 0.5 else ()
        roles = (*opening, *("user", "assistant") * random_.randint(1, 4))
        made.append({"messages": turns(*((role, random_.choice(texts)) for role in roles))})
    return made


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CHATS)
def test_ids_are_those_of_the_emitted_tokenizer(name, count, tmp_path):
    """But where an answer would merge with its prompt; each answer's end is trained, no padding."""
    model = bound(name)
    assert model.pad_id not in (model.eos_id, model.end_of_turn_id)
    write_tokenizer(tmp_path / "tokenizer", model)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    rows = conversations(count, TEXTS, system=not name.startswith("gemma-2"))
    merged = 0
    for row, got in zip(rows, examples(model, rows), strict=True):
        assert got["reject_code"] is None, got["reject_detail"]
        wanted = tokenizer.apply_chat_template(row["messages"], return_dict=False)
        merged += got["merged_cuts"] > 0
        assert (got["input_ids"] == wanted) == (not got["merged_cuts"])
        ends = [
            label
            for label, after in itertools.pairwise([*got["labels"], columns.IGNORED])
            if label != columns.IGNORED and after == columns.IGNORED
        ]
        assert ends == [model.end_of_turn_id] * sum(t["role"] == "user" for t in row["messages"])
        assert model.pad_id not in got["input_ids"]
        for at, turn in enumerate(row["messages"]):
            if turn["role"] == "assistant":
                prompt = tokenizer.apply_chat_template(
                    row["messages"][:at], add_generation_prompt=True, return_dict=False
                )
                if not got["merged_cuts"]:
                    assert got["input_ids"][: len(prompt)] == prompt
                    assert got["labels"][len(prompt) - 1] == columns.IGNORED
                    assert got["labels"][len(prompt)] == got["input_ids"][len(prompt)]
    expected = {"gemma-2-2b-it": 0, "gemma-3-1b-it": 0, "phi-4": 0}
    assert merged == expected.get(name, merged)
    assert merged < count / 2


@pytest.mark.parametrize("name", CHATS)
def test_text_cannot_forge_control_tokens(name):
    """Contents full of the family's control tokens give those of the empty contents' shape."""
    model = bound(name)
    texts = (*model.controls, *(f"a {token}\nb" for token in model.controls))
    rows = conversations(30, texts, system=not name.startswith("gemma-2"))
    plain = [
        {"messages": [{"role": t["role"], "content": "x"} for t in row["messages"]]} for row in rows
    ]
    known = set(model.controls.values())
    forged = examples(model, rows)
    assert [row["reject_code"] for row in forged] == [None] * len(rows)
    for both in zip(forged, examples(model, plain), strict=True):
        one, other = ([i for i in row["input_ids"] if i in known] for row in both)
        assert one == other


def test_what_a_family_does_not_know_is_refused_by_name():
    """Our templates say which turn they do not print; none is dropped in silence."""
    for name, roles, words in table("refusals.toml")["families"]:
        messages = [{"role": role, "content": "x"} for role in roles.split()]
        with pytest.raises(errors.RowError, match=words):
            render.template_of(bound(name)).render(messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CHATS if name in VENDORS])
def test_our_templates_print_what_the_vendors_do(name):
    """Text equality over five hundred conversations, with and without a generation prompt."""
    file = VENDORS[name][1]
    source = peers.member("trl==1.16.0", f"trl/chat_templates/{file}.jinja")
    tokens = {"bos_token": "<bos>", "eos_token": "<|endoftext|>"}
    vendor = template.Template(source, "2024-07-26", **tokens)
    ours = render.template_of(bound(name))
    for row in conversations(500, (*TEXTS, "<end_of_turn>", ""), system=file != "gemma"):
        for prompt in (False, True):
            wanted = vendor.render(row["messages"], add_generation_prompt=prompt)
            assert ours.render(row["messages"], add_generation_prompt=prompt) == wanted
