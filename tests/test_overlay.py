"""The overlay: linked weights, this build's configuration, and marker rows that mean something."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, raised, read_row
from transformers import AutoTokenizer

from pipeline.builds.build import Build
from pipeline.serving import checkpoint, overlay_gate
from pipeline.serving.overlay import overlay
from stages.errors import DataError, OwnLawError, UsageError

ROWS, WIDTH = 151936, 2
STEP, GOOD, BAD = 151646, 151647, 151648
PLUS, MINUS, NEWLINE = 10, 12, 198
BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def save(path: Path, tensors: dict[str, np.ndarray[Any, Any]], dtype: str) -> None:
    """A safetensors file, by its published layout."""
    entries, blobs, at = {}, [], 0
    for name, values in tensors.items():
        blob = checkpoint.narrow(values.astype(np.float32), dtype).tobytes()
        offsets = [at, at + len(blob)]
        entries[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": offsets}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(blobs))


def model_dir(folder: Path, dtype: str, *, tied: bool = True, sharded: bool = False) -> Path:
    """A model directory with an embedding of Qwen2's size, two numbers a row."""
    folder.mkdir()
    config = {"model_type": "qwen2", "vocab_size": ROWS, "eos_token_id": 151643, "use_cache": True}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("the original's")
    table = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) % 251
    table[STEP : BAD + 1] = 0
    embedding = {"model.embed_tokens.weight": table}
    rest = {"model.norm.weight": np.ones(3, np.float32)}
    if not tied:
        rest["lm_head.weight"] = table + 1
    if not sharded:
        save(folder / "model.safetensors", {**embedding, **rest}, dtype)
        return folder
    names = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    files = dict(zip(names, (embedding, rest), strict=True))
    weights = {}
    for name, tensors in files.items():
        save(folder / name, tensors, dtype)
        weights |= dict.fromkeys(tensors, name)
    (folder / checkpoint.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return folder


@pytest.fixture(scope="module")
def builds(built) -> dict[str, Path]:
    """A PRM build and an SFT build."""
    names = {"prm": "math_shepherd", "sft": "chat"}
    return {task: built(task, SAMPLES / task / f"{name}.jsonl") for task, name in names.items()}


@pytest.mark.parametrize(("tied", "dtype"), [(True, "F32"), (False, "BF16"), (True, "F16")])
def test_marker_rows_get_the_rows_of_their_meaning(builds, tmp_path, dtype, tied):
    """Step from the newline, good from +, bad from -; every other byte stays, the original too."""
    original = model_dir(tmp_path / "model", dtype, tied=tied)
    before = (original / "model.safetensors").read_bytes()
    notes = overlay(original, builds["prm"], tmp_path / "out")
    made = tmp_path / "out" / "model.safetensors"
    names = ["model.embed_tokens.weight"] + ([] if tied else ["lm_head.weight"])
    for name in names:
        for target, source in ((STEP, NEWLINE), (GOOD, PLUS), (BAD, MINUS)):
            wanted = read_row(original / "model.safetensors", name, source)
            assert (read_row(made, name, target) == wanted).all()
            assert wanted.any()
    assert (original / "model.safetensors").read_bytes() == before
    after = np.frombuffer(made.read_bytes(), np.uint8)
    changed = np.flatnonzero(after != np.frombuffer(before, np.uint8))
    assert 0 < len(changed) <= len(names) * 3 * WIDTH * BYTES[dtype]
    modules = "['embed_tokens']" if tied else "['embed_tokens', 'lm_head']"
    assert f"modules_to_save={modules}" in notes[-1]


def test_only_the_shard_with_the_embedding_is_copied(builds, tmp_path):
    """The other weights are the same file on the disk."""
    original = model_dir(tmp_path / "model", "BF16", sharded=True)
    overlay(original, builds["prm"], tmp_path / "out")
    first, second = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    assert not os.path.samefile(original / first, tmp_path / "out" / first)
    assert os.path.samefile(original / second, tmp_path / "out" / second)
    row = read_row(tmp_path / "out" / first, "model.embed_tokens.weight", GOOD)
    assert (row == read_row(original / first, "model.embed_tokens.weight", PLUS)).all()


def test_configuration_and_tokenizer_are_the_builds(builds, tmp_path):
    """pad, eos and cache in config.json, the stop list for generation, and AutoTokenizer's ids."""
    original = model_dir(tmp_path / "model", "F32")
    (original / "generation_config.json").write_text('{"temperature": 0.7, "eos_token_id": 1}')
    assert overlay(original, builds["sft"], tmp_path / "out") == []
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["pad_token_id"], config["eos_token_id"]) == (151643, 151645)
    assert config["use_cache"] is False
    assert config["vocab_size"] == ROWS
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [151645, 151643]
    assert generation["temperature"] == 0.7
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    assert tokenizer.eos_token == "<|im_end|>"
    names = ("model.safetensors", "README.md")
    for name in names:
        assert os.path.samefile(original / name, tmp_path / "out" / name)


def test_what_is_wrong_is_said(builds, tmp_path):
    """No model, too small a model, no safetensors, a damaged file, an output in use."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for name, content, words in (
        ("README.md", b"", r"has no config\.json"),
        ("config.json", b'{"vocab_size": 32000}', "32000 embedding rows"),
        ("config.json", b'{"vocab_size": %d}' % ROWS, "no safetensors files"),
        ("model.safetensors", b"\xff" * 64, "is not a safetensors file"),
    ):
        (empty / name).write_bytes(content)
        raised((UsageError, DataError), overlay, empty, builds["prm"], tmp_path / "out", says=words)
    whole = model_dir(tmp_path / "model", "BF16")
    path = whole / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    raised(DataError, overlay, whole, builds["prm"], tmp_path / "out", says="cut short")
    assert not (tmp_path / "out").exists()
    raised(UsageError, overlay, whole, builds["sft"], whole, says="has files in it")


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_bf16_is_rounded_to_the_nearest(value):
    """No other bf16 number is nearer, and bf16 numbers stay what they are."""
    stored = checkpoint.narrow(np.array([value], np.float32), "BF16")
    back = checkpoint.widen(stored, "BF16")
    assert (checkpoint.narrow(back, "BF16") == stored).all()
    error = abs(float(back[0]) - value)
    for neighbour in (int(stored[0]) - 1, int(stored[0]) + 1):
        if 0 <= neighbour < 1 << 16:
            other = float(checkpoint.widen(np.array([neighbour], "<u2"), "BF16")[0])
            if np.isfinite(other):
                assert error <= abs(other - value)


def test_means_are_taken_before_any_row_is_written(tmp_path):
    """Two rows that exchange their values do not see each other's new ones."""
    table = np.array([[1, 1], [3, 5]], np.float32)
    save(tmp_path / "m.safetensors", {"t": table}, "F32")
    checkpoint.set_means(tmp_path / "m.safetensors", "t", {0: (1,), 1: (0, 1)})
    assert read_row(tmp_path / "m.safetensors", "t", 0).tolist() == [3, 5]
    assert read_row(tmp_path / "m.safetensors", "t", 1).tolist() == [2, 3]
    with pytest.raises(UsageError, match="row 2 is needed"):
        checkpoint.set_means(tmp_path / "m.safetensors", "t", {2: (0,)})


def test_an_overlay_that_says_something_else_gets_no_name(builds, tmp_path, monkeypatch):
    """Whatever is changed in what was written: each key, a file of the tokenizer, and any row."""
    monkeypatch.setattr(overlay_gate, "parsed", functools.cache(overlay_gate.parsed))
    original, out = model_dir(tmp_path / "model", "BF16"), tmp_path / "out"
    (original / "generation_config.json").write_text('{"eos_token_id": 7, "temperature": 0.5}')
    overlay(original, builds["prm"], out)
    source = Build.open(builds["prm"])
    overlay_gate.require(out, original, source)
    meant = overlay_gate._meant(source)  # by a tokenizer that takes long to read
    monkeypatch.setattr(overlay_gate, "_meant", lambda _: meant)

    def refused(path: Path, changed: bytes) -> None:
        before = path.read_bytes()
        path.write_bytes(changed)
        raised(OwnLawError, overlay_gate.require, out, original, source, says="overlay")
        path.write_bytes(before)

    for name in ("config.json", "generation_config.json"):
        said = json.loads((out / name).read_bytes())
        for at, key in enumerate(said):  # has another value, or is not there
            other = {k: v for k, v in said.items() if k != key} | ({key: 5} if at % 2 else {})
            refused(out / name, json.dumps(other).encode())
    refused(out / "tokenizer_config.json", (out / "tokenizer_config.json").read_bytes() + b" ")
    weights = (out / "model.safetensors").read_bytes()
    start, size = len(weights) - ROWS * WIDTH * 2 - 3 * 2, WIDTH * 2  # two bytes, then the norm
    rows = {at: weights[start + at * size :][:size] for at in (GOOD, BAD, NEWLINE, PLUS)}
    for at, row in ((GOOD, rows[BAD]), (BAD, rows[NEWLINE]), (77, rows[PLUS]), (0, b"\1" * size)):
        place = start + at * size
        refused(out / "model.safetensors", weights[:place] + row + weights[place + size :])
