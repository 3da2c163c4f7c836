"""Chat families whose vocabulary no package carries, on small tokenizers in their manner.

What is proved here is how such a tokenizer is treated (its special tokens, flags, normalizer and
byte fallback), and that our templates print what the vendors' do. The vendors' ids are declared in
the profiles and checked whenever one of their tokenizers is at hand.
"""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from encoding import encoding
from rows import normalizing
from small_tokenizers import SMALL, small
from support import Run, read_manifest, rows_to, table
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from stages import encoders
from stages.chat_template.render import template_of
from stages.chat_template.template import Template
from stages.columns import IGNORED
from stages.contract import Batch, Record, Row
from stages.errors import RowError
from stages.probes import bind
from stages.profile import TargetModel
from stages.tokenizers.profiles import all_profiles
from stages.tokens.folded_labels import unfold

CHATS = tuple(name for name in SMALL if all_profiles()[name].pair is None)
TEXTS = tuple(table("odd_texts.toml")["small_families"])


def bound(name: str) -> TargetModel:
    return bind(*small(name), with_steps=False)


def conversations(count: int, texts: tuple[str, ...], system: bool, seed: int = 11) -> list[Row]:
    """Seeded chats of one to eight turns that every family takes."""
    random_ = random.Random(seed)
    made = []
    for _ in range(count):
        turns = []
        if system and random_.random() < 0.5:
            turns.append({"role": "system", "content": random_.choice(texts)})
        for _ in range(random_.randint(1, 4)):
            turns.append({"role": "user", "content": random_.choice(texts)})
            turns.append({"role": "assistant", "content": random_.choice(texts)})
        made.append({"messages": turns})
    return made


def encoded(model: TargetModel, rows: list[Row]) -> Batch:
    door = normalizing("sft", "openai")
    batch = door([Record(i, None, b"", row) for i, row in enumerate(rows)])
    for stage in encoding("sft", model):
        batch = stage(batch)
    return unfold(batch)


def huggingface(model: TargetModel) -> Any:
    """Hugging Face's tokenizer with the profile's template."""
    profile = model.profile
    return PreTrainedTokenizerFast(
        tokenizer_object=encoders.parsed(model.tokenizer_json),
        bos_token=profile.bos_token,
        eos_token=profile.eos_token,
        pad_token=profile.pad_token,
        chat_template=profile.chat_template,
    )


def same_as_huggingface(name: str, count: int) -> None:
    """Ids equal Jinja and Hugging Face, but where an answer would merge with its prompt."""
    model = bound(name)
    tokenizer = huggingface(model)
    rows = conversations(count, TEXTS, system=not name.startswith("gemma-2"))
    merged = 0
    for row, got in zip(rows, encoded(model, rows).to_pylist(), strict=True):
        assert got["reject_code"] is None, got["reject_detail"]
        wanted = tokenizer.apply_chat_template(row["messages"], return_dict=False)
        merged += got["merged_cuts"] > 0
        assert (got["input_ids"] == wanted) == (not got["merged_cuts"])
        for at, turn in enumerate(row["messages"]):
            if turn["role"] == "assistant":
                prompt = tokenizer.apply_chat_template(
                    row["messages"][:at], add_generation_prompt=True, return_dict=False
                )
                if not got["merged_cuts"]:
                    assert got["input_ids"][: len(prompt)] == prompt
                    assert got["labels"][len(prompt) - 1] == IGNORED
                    assert got["labels"][len(prompt)] == got["input_ids"][len(prompt)]
    expected = {"gemma-2-2b-it": 0, "gemma-3-1b-it": 0, "phi-4": 0}
    assert merged == expected.get(name, merged)
    assert merged < count / 2


@pytest.mark.parametrize("name", CHATS)
def test_ids_are_those_of_jinja_and_huggingface(name: str) -> None:
    """Sixty seeded conversations per family; prompts are prefixes, training starts behind them."""
    same_as_huggingface(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHATS)
def test_ids_are_those_of_jinja_and_huggingface_on_many(name: str) -> None:
    """The same over six hundred."""
    same_as_huggingface(name, 600)


@pytest.mark.parametrize("name", CHATS)
def test_text_cannot_forge_control_tokens(name: str) -> None:
    """Contents full of the family's control tokens give those of the empty contents' shape."""
    model = bound(name)
    texts = (*model.controls, *(f"a {token}\nb" for token in model.controls))
    rows = conversations(30, texts, system=not name.startswith("gemma-2"))
    plain = [
        {"messages": [{"role": t["role"], "content": "x"} for t in row["messages"]]} for row in rows
    ]
    known = set(model.controls.values())
    forged = encoded(model, rows).to_pylist()
    assert [row["reject_code"] for row in forged] == [None] * len(rows)
    for one, other in zip(forged, encoded(model, plain).to_pylist(), strict=True):
        found = [[i for i in row["input_ids"] if i in known] for row in (one, other)]
        assert found[0] == found[1]


@pytest.mark.parametrize("name", [name for name in CHATS if name.startswith("gemma")])
def test_bos_stands_once_and_first(name: str) -> None:
    """The template prints it; nothing adds another."""
    model = bound(name)
    bos = model.controls["<bos>"]
    for row in encoded(model, conversations(20, TEXTS, system=False)).to_pylist():
        assert row["input_ids"][0] == bos
        assert row["input_ids"].count(bos) == 1


@pytest.mark.parametrize("name", CHATS)
def test_turns_end_trained_and_padding_is_not_the_end(name: str) -> None:
    """Each answer's last trained token is the end of turn; what follows it is not trained."""
    model = bound(name)
    assert model.pad_id not in (model.eos_id, model.end_of_turn_id)
    rows = conversations(20, TEXTS, system=False)
    for row, got in zip(rows, encoded(model, rows).to_pylist(), strict=True):
        labels = got["labels"]
        ends = [
            label
            for label, after in zip(labels, [*labels[1:], IGNORED], strict=True)
            if label != IGNORED and after == IGNORED
        ]
        assert ends == [model.end_of_turn_id] * (len(row["messages"]) // 2)
        assert model.pad_id not in got["input_ids"]


@pytest.mark.parametrize(
    ("name", "turns", "words"),
    [
        ("gemma-2-2b-it", "system user assistant", "knows no system turn"),
        ("gemma-2-2b-it", "user user assistant", "take turns"),
        ("gemma-3-1b-it", "user system assistant", "no system turn"),
        ("gemma-3-1b-it", "assistant user", "take turns"),
        ("phi-3-mini-4k", "user tool assistant", "knows no tool turn"),
        ("phi-3.5-mini", "user tool assistant", "knows no tool turn"),
        ("phi-4", "user tool assistant", "knows no tool turn"),
    ],
)
def test_what_a_family_does_not_know_is_refused_by_name(name: str, turns: str, words: str) -> None:
    """Our templates say which turn they do not print; none is dropped in silence."""
    messages = [{"role": role, "content": "x"} for role in turns.split()]
    with pytest.raises(RowError, match=words):
        template_of(bound(name)).render(messages)


def test_gemma3_folds_the_system_text_into_the_first_turn() -> None:
    """As the vendor's template does: untrimmed, a blank line behind it."""
    messages = [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Ho"},
    ]
    text = template_of(bound("gemma-3-1b-it")).render(messages)
    assert text.startswith("<bos><start_of_turn>user\n Be brief. \n\nHi<end_of_turn>\n")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TRL's wheel, which carries the vendors' templates; skipped where it cannot be fetched."""
    folder = tmp_path_factory.mktemp("trl")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "trl==1.16.0"]
    done = subprocess.run([*command, "--dest", folder], capture_output=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip("no index that has trl")
    return wheels[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("gemma-2-2b-it", "gemma"),
        ("gemma-3-1b-it", "gemma3"),
        ("phi-3-mini-4k", "phi3"),
        ("phi-3.5-mini", "phi3_5"),
    ],
)
def test_our_templates_print_what_the_vendors_do(published: Path, name: str, file: str) -> None:
    """Text equality over five hundred conversations, with and without a generation prompt."""
    with zipfile.ZipFile(published) as wheel:
        source = wheel.read(f"trl/chat_templates/{file}.jinja").decode()
    tokens = {"bos_token": "<bos>", "eos_token": "<|endoftext|>"}
    vendor = Template(source, "2024-07-26", **tokens)
    ours = template_of(bound(name))
    for row in conversations(500, (*TEXTS, "<end_of_turn>", ""), system=file != "gemma"):
        for prompt in (False, True):
            wanted = vendor.render(row["messages"], add_generation_prompt=prompt)
            assert ours.render(row["messages"], add_generation_prompt=prompt) == wanted


@pytest.mark.parametrize("name", ["gemma-2-2b-it", "phi-3-mini-4k", "phi-4"])
def test_a_build_gives_what_its_tokenizer_gives(name: str, pipeline: Run, tmp_path: Path) -> None:
    """From a profile file to shards; the emitted tokenizer and template repeat every row."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_bytes(small(name)[1])
    profile = f'like = "{name}"\nname = "small"\ntokenizer = "model"\ntoken_ids = {{}}\n'
    (tmp_path / "small.toml").write_text(profile)
    rows = conversations(40, TEXTS, system=False)
    rows_to(tmp_path / "data.jsonl", *rows)
    options = ("--model", "small.toml", "--layout", "ragged", "-o", "out")
    pipeline("run", "sft", "data.jsonl", *options).ended()
    manifest = read_manifest(tmp_path / "out")
    assert manifest["rows"]["used"] == len(rows)
    assert manifest["encoder"]["parity"]["mismatches"] == 0
    from datasets import load_from_disk

    stored = load_from_disk(str(tmp_path / "out"))["train"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "tokenizer")
    same = [
        tokenizer.apply_chat_template(row["messages"], return_dict=False) == got["input_ids"]
        for row, got in zip(rows, stored, strict=True)
    ]
    assert same.count(False) <= manifest["encoder"]["merged_cuts"]
    assert same.count(True) >= len(rows) / 2
