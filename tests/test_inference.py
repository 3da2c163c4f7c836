"""A build says which prompt its answers were trained behind, and how long they are."""

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import load_from_disk
from encoding import model_of
from hypothesis import given
from hypothesis import strategies as st
from support import read_manifest, write_rows
from transformers import AutoTokenizer

from pipeline.shards import answers
from stages import encoders, errors
from stages.chat_template.render import template_of
from stages.chat_template.template import Template
from stages.chat_template.ways import variants
from stages.tokenizers.profiles import all_profiles, template
from stages.tokens.inference import modes, prompts

# One for all whose prompts are the same.
HYBRIDS = {
    (p.ranks, p.chat_template, p.template_variants): name
    for name, p in all_profiles().items()
    if modes(p) and p.ranks
}
NAMES = ["input_ids", "labels"]
QUESTION = [{"role": "user", "content": "2 + 2?"}]
PLAIN = {"messages": [*QUESTION, {"role": "assistant", "content": "4"}]}
THOUGHT = {"messages": [*QUESTION, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}]}


def prompt_of(row: dict[str, Any]) -> list[int]:
    """Ids up to the first trained token."""
    first = next(i for i, label in enumerate(row["labels"]) if label != -100)
    return row["input_ids"][:first]


@pytest.mark.parametrize(
    ("row", "mode", "value"), [(PLAIN, "non_thinking", False), (THOUGHT, "thinking", True)]
)
def test_the_named_arguments_render_the_trained_prompt(row, mode, value, make, tmp_path):
    """Rendered with exactly the arguments of serving.json, the prompt has the trained ids."""
    folder = make(
        "sft", write_rows(tmp_path / "d.jsonl", [row]), model="qwen3-0.6b", layout="ragged"
    )
    serving = json.loads((folder / "serving.json").read_bytes())["chat_template"]
    manifest = read_manifest(folder)
    assert serving["arguments"] == manifest["inference"]["arguments"] == {"enable_thinking": value}
    assert manifest["inference"]["trained_turns"][mode] == 1
    assert not manifest["inference"]["mixed"]
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rendered = tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_dict=True, **serving["arguments"]
    )["input_ids"]
    stored = load_from_disk(str(folder))["train"][0]
    assert rendered == prompt_of(stored)
    engines = serving["modes"][mode]["engines"]
    assert engines["vllm"]["request"] == {"chat_template_kwargs": {"enable_thinking": value}}
    assert f"enable_thinking={value})" in engines["transformers"]
    assert engines["ollama"]["request"] == {"think": value}


@pytest.mark.parametrize("name", sorted(HYBRIDS.values()))
def test_every_hybrid_profile_has_two_prompts(name, cache_dir):
    """Each is the template's rendering with its arguments, and both are told apart by ids."""
    try:
        model = model_of(name, cache_dir)
    except errors.ModelError as error:
        pytest.skip(error.what)
    found = {prompt.name: prompt for prompt in prompts(model)}
    assert set(found) == {"thinking", "non_thinking"}
    tokenizer = encoders.parsed(model.tokenizer_json)
    for prompt in found.values():
        text = template_of(model).render(QUESTION, add_generation_prompt=True, **prompt.arguments)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tuple(ids[-len(prompt.tail) :]) == prompt.tail
        assert prompt.tail[0] in model.controls.values()


def test_directories_are_asked_for_their_switch():
    """A template that turns reasoning off by an argument has two prompts, others have one."""
    assert variants(Template(template("qwen3"), "2024-07-26")) == (
        (),
        (("enable_thinking", False),),
    )
    assert variants(Template(template("qwen2"), "2024-07-26")) == ((),)
    source = (
        "{{ messages[0].content }}{% if add_generation_prompt %}"
        "{{ '<think>' if thinking else '</think>' }}{% endif %}"
    )
    assert variants(Template(source, "2024-07-26")) == ((), (("thinking", True),))


@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=30))
def test_limits_are_exact(model, rows):
    """The maximum, and the smallest number that 99.9 % do not exceed, over any packing of turns."""
    end = model.end_of_turn_id
    ids: list[int] = []
    labels: list[int] = []
    for turns in rows:
        for length in turns:
            ids += [1, 2, *[5] * (length - 1), end, 3]
            labels += [-100, -100, *[5] * (length - 1), end, -100]
    counting = answers.Counting(model, masked=False, everything=False)
    flat = sorted(itertools.chain(*rows))
    counting(pa.table([pa.array([x], pa.list_(pa.int32())) for x in (ids, labels)], NAMES))
    found = answers.limits(counting.answers)
    assert (found.max, found.turns) == (flat[-1], len(flat))
    assert found.p999 == int(np.quantile(flat, 0.999, method="inverted_cdf"))
    again = counting.answers + counting.answers
    assert again.lengths.total() == 2 * len(flat)
    again.lengths.update({7: 1999 * again.lengths.total(), 4000: 1})  # a giant decides nothing
    assert (answers.limits(again).p999, answers.limits(again).max) == (7, 4000)
    assert answers.limits(answers.Answers()) is None
