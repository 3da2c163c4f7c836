"""Prompts that the shipped chat templates print are known as templated, wherever they were cut."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import normalizing
from support import table

from stages import formats
from stages.chat_template.template import Template
from stages.contract import FormatOptions, Message, Record, Row
from stages.errors import RowError
from stages.profile import ModelProfile
from stages.rows import carried, templated
from stages.tokenizers.profiles import all_profiles

# One profile for each template that is shipped.
BY_SOURCE = {p.chat_template: p for p in all_profiles().values() if p.pair is None}
PROFILES = {profile.name: profile for profile in BY_SOURCE.values()}
TALK = [
    {"role": "user", "content": "one\ntwo"},
    {"role": "assistant", "content": "three"},
    {"role": "user", "content": "four"},
]
TURNS = [("user", "one\ntwo"), ("assistant", "three"), ("user", "four")]
ALLOWED = FormatOptions(already_templated=True)


def template(profile: ModelProfile) -> Template:
    """The family's template with its tokens."""
    tokens = {"eos_token": profile.eos_token, "pad_token": profile.pad_token}
    bos = {"bos_token": profile.bos_token} if profile.bos_token else {}
    return Template(profile.chat_template, profile.date_string, **tokens, **bos)


def said(messages: list[Message]) -> list[tuple[str, str]]:
    """Roles and contents, without the system text that a template brings."""
    return [(m.role, m.content or "") for m in messages if m.role != "system"]


def cuts(profile: ModelProfile) -> list[str]:
    """A family's prompt as programs hand it on: whole, stripped, cut at its last header."""
    whole = template(profile).render(TALK, None, add_generation_prompt=True)
    bare = template(profile).render(TALK, None)
    found = {whole, whole.rstrip(), whole.rstrip("\n"), bare}
    if whole.rstrip() != whole and not whole.rstrip().endswith("<think>"):
        found.add(f"{whole.rstrip()} ")
    found.add(re.sub(r"(<think>\s*)+\Z", "", whole))
    # Right behind the role's name, where a separator follows it.
    found.add(re.sub(r"(<\|im_sep\|>|\n)\Z", "", whole))
    # With or without the token that begins every text.
    return sorted(found | {text.removeprefix(profile.bos_token or "") for text in found})


@pytest.mark.parametrize("name", PROFILES)
def test_a_familys_prompt_is_known_wherever_it_was_cut(name: str) -> None:
    """Its turns come back, and the answer is the whole answer; so do those of the text that it
    prints for training. What it prints around turns are markers, told of in all other rows."""
    profile = PROFILES[name]
    for prompt in cuts(profile):
        found = templated.read(prompt)
        assert found is not None, prompt
        opened = prompt.rstrip().endswith("<think>")
        answer = "so\n</think>\n\nfive" if opened else "five"
        for end in ("", profile.end_of_turn, f"{profile.end_of_turn}\n"):
            turns = said(templated.answered(*found, answer + end))
            assert turns[:-1] == TURNS
            role, content = turns[-1]
            assert role == "assistant"
            assert content.removeprefix("<think>\n").removeprefix("<think>") == answer
        with pytest.raises(RowError) as caught:
            formats.load("query_response").read(
                {"question": prompt, "answer": answer}, FormatOptions()
            )
        assert caught.value.code == "already_templated"
    text = template(profile).render([*TALK, {"role": "assistant", "content": "five"}], None)
    for more in ("", "\n"):
        found = templated.read(text + more)
        assert found is not None
        turns = said(found[1].messages)
        assert turns[:-1] == TURNS
        assert turns[-1][1].split("</think>")[-1].strip() == "five"
    text = template(profile).render(TALK, None, add_generation_prompt=True)
    printed = set(re.findall(r"<[|｜][^<>\n]+[|｜]>|<\w+_of_turn>|\[/?INST\]", text))
    assert printed
    assert printed <= set(carried.MARKERS)


HEADERS = {
    "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant": "\n",
    "<|im_start|>user<|im_sep|>q<|im_end|><|im_start|>assistant": "<|im_sep|>",
    "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>": "\n\n",
    "<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model": "\n",
    "<|user|>\nq<|end|>\n<|assistant|>": "\n",
    "<|user|>\nq</s>\n<|assistant|>": "\n",
    "### Instruction:\nq\n\n### Response:": "",
    "[INST] q [/INST]": "",
    "<s>[INST] q[/INST]": "",
}


@settings(max_examples=80, deadline=None)
@given(
    prompt=st.sampled_from(list(HEADERS)),
    kept=st.integers(0, 2),
    moved=st.booleans(),
    answer=st.text(st.sampled_from("ab 好.#"), min_size=1, max_size=8).filter(str.strip),
)
def test_what_a_header_lacks_is_no_part_of_the_answer(
    prompt: str, kept: int, moved: bool, answer: str
) -> None:
    """A cut anywhere behind the header gives one example, with the rest of the gap or without."""
    gap = HEADERS[prompt]
    kept = min(kept, len(gap)) if gap.isspace() else 0
    found = templated.read(prompt + gap[:kept])
    assert found is not None
    (asked, made) = templated.answered(*found, (gap[kept:] if moved else "") + answer)
    assert (asked.role, (asked.content or "").strip()) == ("user", "q")
    assert made.role == "assistant"
    assert made.content == (answer.strip() if found[0].strips else answer)


def test_a_templated_problem_may_open_the_answer() -> None:
    """Of a PRM's problem nothing is kept that generation starts from."""
    for start in ("", "assistant", "assistant\n", "assistant\n<think>\n"):
        opened = f"<|im_start|>{start}" if start else ""
        row: Row = {
            "prompt": f"<|im_start|>user\nq<|im_end|>\n{opened}",
            "completions": ["a"],
            "labels": [True],
        }
        (chain,) = formats.load("stepwise").read(row, ALLOWED)
        assert getattr(chain, "problem", None) == "q"


def test_markers_of_any_template_are_told_of_from_the_first_row() -> None:
    """In every place that text can stand; rows without one are told of nothing."""
    markers = [m for m in carried.MARKERS if m != "</s>"]  # which ends a struck-through word too
    texts = [json.dumps(text)[1:-1] for text in (*markers, "plain", "a < b", "[1]", "### Notes")]
    for shape in table("marked_rows.jsonl"):
        row = json.dumps(shape["row"])
        rows = [json.loads(row.replace("{}", text)) for text in texts]
        records = [Record(i, 0, b"", row) for i, row in enumerate(rows)]
        batch = normalizing(shape["task"], shape["format"])(records)
        assert batch["reject_code"].null_count == len(rows), shape["name"]
        noted = batch["note"].to_pylist()
        assert noted == ["template_text"] * len(markers) + [None] * 4, shape["name"]
        assert carried.tally(batch) == {"template_text": len(markers)}
