"""What a model directory declares wrongly is never repaired in silence."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_tokenizers import model_folder, small
from support import few, raised, read_manifest, rows_to, table

from pipeline.builds import build, summary
from stages.errors import ModelError
from stages.tokenizers.profiles import template
from stages.tokenizers.resolve import Overrides, resolve

ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
PAD, END = "<|endoftext|>", "<|im_end|>"
SOUND: dict[str, Any] = {"eos_token": END, "pad_token": PAD, "chat_template": template("chatml")}


def directory(folder: Path, declared: dict[str, Any], **files: dict[str, Any]) -> Path:
    """A model directory over a small tokenizer; an empty value is left out."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(small("smollm2-1.7b")[1])
    said = {key: value for key, value in {**SOUND, **declared}.items() if value != ""}
    contents = {"tokenizer_config": said, "config": {}, **files}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder


@pytest.mark.parametrize("case", few(table("repairs.toml")["case"], 3), ids=lambda one: one["name"])
def test_each_wrong_token_is_told(case, make, tmp_path):
    """Manifest, summary and serving.json name the file, the value and what is used."""
    key, words = case["key"], case["words"]
    model = directory(tmp_path / "model", case["config"], **case["files"])
    folder = make("sft", rows_to(tmp_path / "data.jsonl", ROW), model=f"{model}/")
    manifest = read_manifest(folder)
    (repair,) = [one for one in manifest["model"]["repairs"] if one["key"] == key]
    assert repair["declared"] == case.get("declared")
    wanted = {"pad_token": PAD, "pad_token_id": 0, "eos_token": END, "eos_token_id": [2, 0]}
    assert repair["used"] == wanted[key]
    assert manifest["model"]["pad_token"] == PAD
    assert manifest["model"]["end_of_turn"] == END
    told = summary.said("inference", build.Build.open(folder).manifest)
    assert any(one.startswith("repaired") and words in one and key in one for one in told)
    serving = json.loads((folder / "serving.json").read_bytes())
    assert any(words in sentence for sentence in serving["repairs"])


def test_what_needs_no_repair_and_what_has_none(tmp_path):
    """Nothing is told where all is used as declared; a pad is kept or missed where none is free."""
    files = {"generation_config": {"eos_token_id": [2, 0], "pad_token_id": 0}}
    model = directory(tmp_path / "sound", {}, **files)
    assert resolve(f"{model}/", tmp_path, Overrides()).repairs == ()
    model = directory(tmp_path / "unknown", {"unk_token": PAD})
    (repair,) = resolve(f"{model}/", tmp_path, Overrides()).repairs
    assert repair.used == repair.declared == PAD
    assert "it is kept" in repair.sentence
    model = directory(tmp_path / "both", {"eos_token": PAD, "pad_token": PAD})
    assert {one.key for one in resolve(f"{model}/", tmp_path, Overrides()).repairs} == {"eos_token"}
    with pytest.raises(ModelError, match="no pad token that differs from its eos"):
        resolve(f"{model}/", tmp_path, Overrides(eos=PAD))


def test_encoders_are_told_of_as_well(tmp_path):
    """A pad token found by its id is a repair; a number in its place is refused by name."""
    model = model_folder(tmp_path / "bert", "bert-base-uncased")
    (repair,) = resolve(f"{model}/", tmp_path, Overrides()).repairs
    assert (repair.key, repair.declared, repair.used) == ("pad_token", None, "[PAD]")
    (model / "tokenizer_config.json").write_text('{"pad_token": 0}')
    raised(ModelError, resolve, f"{model}/", tmp_path, Overrides(), says="by a number, 0")
