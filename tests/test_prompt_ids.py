"""What stands before an answer is what inference feeds: by ids, over rows of several turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from encoding import encoded, encoding
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import normalizing
from test_broken_answers import bound

from stages import encoders
from stages.chat_template.render import template_of
from stages.columns import IGNORED
from stages.profile import TargetModel

TEXTS = st.text(st.sampled_from("\n a."), min_size=1, max_size=4).filter(str.strip)


def examples(model: TargetModel, messages: list[Any]) -> list[dict[str, Any]]:
    """A conversation's examples, encoded."""
    by_turn = model.profile.one_example_per_turn
    door = normalizing("sft", "openai", "assistant", by_turn)
    reference = encoders.load("tokenizers", model.tokenizer_json)
    stages = encoding("sft", model, reference)
    return list(encoded(door, stages, [{"messages": messages}]).to_pylist())


def fed(model: TargetModel, messages: list[Any]) -> list[list[int]]:
    """What a server feeds for the answer to these turns, by each prompt that the family has."""
    reference = encoders.load("tokenizers", model.tokenizer_json)
    variants = [dict(variant) for variant in model.profile.template_variants]
    found = template_of(model)
    texts = [found.render(messages, None, add_generation_prompt=True, **v) for v in variants]
    return [reference.encode_whole([text])[0].tolist() for text in texts]


@pytest.mark.parametrize("name", ["qwen2.5-0.5b-instruct", "qwen3-0.6b", "phi-4"])
@settings(max_examples=15)
@given(said=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_the_first_trained_answer_stands_behind_what_inference_feeds(
    name: str, cache_dir: Path, said: list[tuple[str, str]]
) -> None:
    """Always for the first answer of an example; for later ones where no cut is counted."""
    model = bound(name, cache_dir)
    messages: list[Any] = []
    for asked, answer in said:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answer})
    made = examples(model, messages)
    assert all(one["reject_code"] is None for one in made)
    by_turn = model.profile.one_example_per_turn
    assert len(made) == (len(said) if by_turn else 1)
    for number, one in enumerate(made):
        ids, labels = one["input_ids"], one["labels"]
        first = next(i for i, label in enumerate(labels) if label != IGNORED)
        assert ids[:first] in fed(model, messages[: 2 * number + 1])
    whole = made[-1]["input_ids"]
    exact = [whole[: len(ids)] == ids for ids in fed(model, messages[:-1])]
    assert any(exact) or made[-1]["merged_cuts"]


def test_a_later_prompt_of_one_example_keeps_the_cut(cache_dir: Path) -> None:
    """An earlier answer that begins with a line break: apart as it was trained, and counted."""
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "\nfirst"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "second"},
    ]
    model = bound("qwen2.5-0.5b-instruct", cache_dir)
    (one,) = examples(model, messages)
    (inference,) = fed(model, messages[:-1])
    assert one["merged_cuts"] == 1
    assert one["input_ids"][: len(inference) + 1] != inference
    assert 271 in inference  # "\n\n"
    assert 271 not in one["input_ids"]
    by_turn = bound("qwen3-0.6b", cache_dir)
    assert examples(by_turn, messages)[1]["merged_cuts"] == 0
