"""A tokenizer that loses text is refused: a row comes back from its ids, or no build is made."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizers import SMALL, model_folder, small
from support import Ran, Run, read_manifest, rows_to

from pipeline.builder import planning
from pipeline.options.config import Config
from pipeline.publish.check import check
from pipeline.shards.part import PartReport
from stages import errors, probes
from stages.profile import declare
from stages.tokenizers.survival import loss

Change = Callable[[dict[str, Any]], object]
NAME = "all_text_survives"
DELETES = {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}
NO_HAN = {"type": "Replace", "pattern": {"Regex": r"\p{Han}"}, "content": ""}
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
def test_any_text_survives_the_families_that_write(name: str, text: str) -> None:
    assert loss(_model(name), text) is None


def test_an_encoder_may_declare_case_accents_and_spaces() -> None:
    model = _model("bert-base-uncased")
    assert loss(model, "What IS  the\nánswer?  It is 42 ") is None
    assert loss(model, "+ ( )") is None  # no token has these, and they are no letters
    assert loss(model, "Жуть") is not None
    lowered = _model("smollm2-1.7b", lambda content: content.update(normalizer=LOWER))
    assert loss(lowered, "What") == "'What' is read as 'what'"


def test_the_probe_finds_what_is_wrong_with_a_tokenizer() -> None:
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


def test_what_no_token_has_is_lost() -> None:
    model = _model("smollm2-1.7b", _without_newline)
    assert loss(model, "one\ntwo") == r"'one\ntwo' is read as 'onetwo'"
    model = _model("gemma-2-2b-it", lambda content: content["model"].update(byte_fallback=False))
    assert loss(model, "क") is not None


def _folder(path: Path, built: Path, **changed: Any) -> Path:
    """The tokenizer of a build as a model's folder, with some keys changed."""
    path.mkdir()
    for file in (built / "tokenizer").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    said = {"model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768}
    (path / "config.json").write_text(json.dumps(said))
    # A class of its own would bring the normalizer of its family along.
    config = json.loads((path / "tokenizer_config.json").read_bytes())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    content = json.loads((path / "tokenizer.json").read_bytes()) | changed
    (path / "tokenizer.json").write_text(json.dumps(content))
    return path


def _reports(*lost: str) -> list[PartReport]:
    """Two rows that were read twice for each text, and one of them lost where it is not empty."""
    return [PartReport(sampled=2, lost=bool(text), loss=text) for text in lost]


def test_one_odd_row_is_allowed_and_so_is_a_small_share() -> None:
    config = Config.of("sft", ("rows.jsonl",), "acme", Path("out"))
    for lost in ([""], ["x", "", ""], ["x", "y", *[""] * 40]):
        planning.require_text_kept(config, _reports(*lost))
    lost = _reports("x", "y", "")
    with pytest.raises(errors.ModelError, match="loses text in 2 of 6 sampled rows: x"):
        planning.require_text_kept(config, lost)
    planning.require_text_kept(config.but(tolerance={"lost_text.fail": 0.4}), lost)


@pytest.mark.slow
def test_rows_that_are_lost_are_refused_or_reported(pipeline: Run, tmp_path: Path) -> None:
    """And ``check`` asks the tokenizer of a build again."""
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    told = ["什么是水?", *(f"What is {n}?" for n in range(20))]

    def run(rows: list[str], model: object, to: Path) -> Ran:
        lines = [{"prompt": text, "completion": "It is so."} for text in rows]
        rows_to(data, *lines)
        return pipeline("run", "sft", data, "--model", model, "-o", to)

    assert run(told, "qwen2-1.5b", out).status == 0
    assert read_manifest(out)["audits"]["lost_text"]["status"] == "pass"
    model = _folder(tmp_path / "lossy", out, normalizer=NO_HAN)
    assert run(told, model, tmp_path / "warned").status == 0
    line = read_manifest(tmp_path / "warned")["audits"]["lost_text"]
    assert line["status"] == "warn"
    assert r"1 of 21 sampled rows, for example '什么是水?\nIt is so.' is read as" in line["detail"]
    ran = run(told[:1], model, tmp_path / "refused")
    assert ran.status == 2
    assert r"loses text in 1 of 1 sampled row: '什么是水?\nIt is so.' is read as '?" in ran.err
    assert not check(out, tmp_path / "cache").faults
    file = out / "tokenizer" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"normalizer": LOWER}))
    faults = check(out, tmp_path / "cache").faults
    assert "is read as 'the answer" in " ".join(fault.detail for fault in faults)


def test_an_encoder_that_reads_little_is_refused(pipeline: Run, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "bert", "bert-base-uncased")
    rows = [{"prompt": f"What {n}?", "chosen": "да yes", "rejected": "нет no"} for n in range(5)]
    rows_to(tmp_path / "rows.jsonl", *rows)
    options = ("--model", model, "-o", "out", "--max-length", 256)
    pipeline("run", "rm", "rows.jsonl", *options).refused(2, "[UNK]")
