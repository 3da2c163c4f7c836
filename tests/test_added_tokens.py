"""A text that the user makes a token: one id everywhere, in the emitted tokenizer and the model."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import load_from_disk
from rows import turns
from support import Make, Ran, read_manifest, read_row, rows_to
from test_overlay import model_dir
from transformers import AutoTokenizer

from pipeline.builds.build import Build
from pipeline.builds.summary import said
from pipeline.inputs.recipe import resolve_recipe
from pipeline.options.config import Config
from pipeline.serving import serving
from pipeline.serving.overlay import overlay
from stages import encoders, errors, probes
from stages.tokenizers import resolve
from stages.tokenizers.profiles import all_profiles

SAID = ("user", "Who? You may <search>."), ("assistant", "Wait.<search>Oslo<search> So: Ana.")
ROWS = [{"messages": turns(*SAID)}, {"messages": turns(("user", "hi"), ("assistant", "hello"))}]
TOKEN = 151646


@pytest.fixture(scope="module")
def folder(built: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build with the token."""
    data = rows_to(tmp_path_factory.mktemp("added") / "d.jsonl", *ROWS)
    tokens = ("--stop", "<search>", "--add-token", "<search>")
    return built("sft", data, "--layout", "ragged", *tokens)


@pytest.mark.slow
def test_one_id_wherever_it_stands(folder: Path, pipeline: Callable[..., Ran]) -> None:
    """In context and in what is trained; parity with the whole text holds, and so does check."""
    row = load_from_disk(str(folder))["train"][0]
    places = [i for i, token in enumerate(row["input_ids"]) if token == TOKEN]
    assert [row["labels"][i] for i in places] == [-100, TOKEN, TOKEN]
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    text = tokenizer.apply_chat_template(ROWS[0]["messages"], tokenize=False)
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == row["input_ids"]
    assert "<search>" in tokenizer.decode(row["input_ids"], skip_special_tokens=True)
    manifest = read_manifest(folder)
    assert manifest["model"]["added_tokens"] == {"<search>": TOKEN}
    parity = manifest["encoder"]["parity"]
    assert (parity["sampled"], parity["mismatches"]) == (2, 0)
    assert manifest["options"]["add_token"] == ["<search>"]
    again = pipeline("check", folder).ended()
    assert "2 examples rebuilt" in again.out


@pytest.mark.slow
def test_the_contract_says_which_servers_need_the_tokenizer(folder: Path) -> None:
    """A stock tokenizer decodes the id to nothing, so its string alone stops nobody there."""
    told = said("inference", Build.open(folder).manifest)
    assert any("'<search>' is registered as 151646" in line for line in told)
    found = json.loads((folder / "serving.json").read_bytes())
    assert found["added_tokens"] == {"<search>": TOKEN}
    assert TOKEN in found["stop_token_ids"]
    assert set(found["needs_this_tokenizer"]) >= {"vllm", "trl_grpo", "transformers", "sglang"}
    (marker,) = found["markers"]
    assert (marker["ids"], marker["use"]) == ([TOKEN], serving.REGISTERED)
    assert marker["stock_tokenizer_sees_it"] is False
    generation = json.loads((folder / "tokenizer" / "generation_config.json").read_bytes())
    assert generation["eos_token_id"] == [151645, 151643]


def test_the_overlay_gives_its_row_a_meaning(
    folder: Path, tokenizer_json: bytes, tmp_path: Path
) -> None:
    """The mean of the rows of what the text was before."""
    original = model_dir(tmp_path / "model", "F32", tied=False)
    notes = overlay(original, folder, tmp_path / "out")
    before = encoders.parsed(tokenizer_json).encode("<search>", add_special_tokens=False).ids
    assert len(before) > 1
    path = original / "model.safetensors"
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        wanted = np.mean([read_row(path, name, index) for index in before], axis=0)
        made = read_row(tmp_path / "out" / "model.safetensors", name, TOKEN)
        assert np.allclose(made, wanted)
    assert any("this directory's tokenizer" in note and "<search>" in note for note in notes)


def test_step_tokens_keep_their_ids(tokenizer_json: bytes) -> None:
    """Tokens of one's own come behind those that process reward models use."""
    profile = resolve.register_added(all_profiles()["qwen2-1.5b"], tokenizer_json, ("<search>",))
    model = probes.bind(profile, tokenizer_json, with_steps=True)
    assert (model.step_id, model.good_id, model.bad_id) == (151646, 151647, 151648)
    assert model.added_ids == {"<search>": 151649}
    assert "<search>" not in model.controls


def test_what_cannot_be_a_token_is_refused(tokenizer_json: bytes) -> None:
    """With the text and the reason."""
    for text, words in (
        ("", "is empty"),
        (" <search>", "whitespace"),
        ("<|im_end|>", "is a control token"),
        ("a<|im_end|>", "holds the control token"),
        ("search", r"is one token of qwen2-1\.5b already"),
    ):
        with pytest.raises(errors.UsageError, match=words):
            resolve.register_added(all_profiles()["qwen2-1.5b"], tokenizer_json, (text,))


def test_a_token_without_a_row_needs_a_resize(tokenizer_json: bytes) -> None:
    """No id may lie outside the model's embedding."""
    profile: Any = replace(all_profiles()["qwen2-1.5b"], embedding_size=151646)
    profile = resolve.register_added(profile, tokenizer_json, ("<search>",))
    with pytest.raises(errors.ModelError, match="resize_token_embeddings"):
        probes.bind(profile, tokenizer_json, with_steps=False)


@pytest.mark.slow
def test_the_fingerprint_knows_the_token(cache_dir: Path, tmp_path: Path) -> None:
    """Another token is another recipe, and another part."""
    recipes = [
        resolve_recipe(
            Config.of("sft", (), "qwen2-1.5b", tmp_path, cache_dir=cache_dir, add_token=tokens), []
        )
        for tokens in ((), ("<search>",), ("<find>",))
    ]
    assert len({recipe.fingerprint for recipe in recipes}) == 3
    assert len({recipe.part_fingerprint("openai") for recipe in recipes}) == 3
