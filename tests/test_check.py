"""``pipeline check``: whatever is changed in a finished build is found, and named."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from support import SAMPLES, Ran

import pipeline.builder.build
from pipeline.manifest import seal
from pipeline.manifest.dataset_files import write_json
from pipeline.options.config import Config
from pipeline.publish.check import check
from pipeline.publish.checked import Checked
from pipeline.shards.measured import read
from stages.errors import UsageError
from stages.files import file_hash
from stages.tokenizers.resolve import Overrides, resolve

Run = Callable[..., Ran]
SHARD = "train/data-00000-of-00001.arrow"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of the builds."""
    path = tmp_path_factory.mktemp("source") / "pairs.jsonl"
    shutil.copy(SAMPLES / "rm" / "pairs_margin.jsonl", path)
    return path


@pytest.fixture(scope="module")
def built(source: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good build."""
    output = tmp_path_factory.mktemp("built") / "out"
    config = Config.of("rm", (str(source),), "qwen2-1.5b", output, cache_dir=cache_dir, workers=1)
    pipeline.builder.build.build(config, lambda *_: None)
    return output


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(built, tmp_path / "copy")
    return tmp_path / "copy"


def codes(found: Checked) -> dict[str, set[str]]:
    """The places of the faults, by their code."""
    named: dict[str, set[str]] = {}
    for fault in found.faults:
        named.setdefault(fault.code, set()).add(fault.where)
    return named


def test_a_good_build_has_no_fault(built: Path, cache_dir: Path) -> None:
    """Everything was looked at: the gate judged, and rows were rebuilt from the source."""
    found = check(built, cache_dir)
    assert found.faults == []
    assert found.notes == []
    assert found.rows_made_again == 6
    assert found.verdict is not None
    assert found.verdict.passed


def test_any_flipped_byte_is_found(built: Path, copy: Path, cache_dir: Path) -> None:
    """In every file of the build, at any place, and the file is named."""
    draw = random.Random(0)
    names = sorted(p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file())
    assert {"manifest.json", "run.json", SHARD, "tokenizer/tokenizer.json"} <= {*names}
    for name in names:
        path = copy / name
        data = bytearray(path.read_bytes())
        if not data:
            continue
        at = draw.randrange(len(data))
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        found = check(copy, cache_dir)
        assert name in {fault.where for fault in found.faults}, (name, at)
        shutil.copy(built / name, path)
    assert check(copy, cache_dir).faults == []


@pytest.mark.parametrize("name", [SHARD, "rejects.jsonl", "manifest.json", "tokenizer"])
def test_what_is_missing_is_found(copy: Path, cache_dir: Path, name: str) -> None:
    """A shard, a list of rejects, the manifest, a folder."""
    path = copy / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = codes(check(copy, cache_dir))["missing"]
    assert any(where.startswith(name) for where in found)


def test_what_does_not_belong_is_found(copy: Path, cache_dir: Path) -> None:
    """Another shard beside the build's own would be trained on by whoever globs."""
    shutil.copy(copy / SHARD, copy / "train" / "more.arrow")
    assert codes(check(copy, cache_dir)) == {"unknown": {"train/more.arrow"}}


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "rows": lambda m: m["rows"].update({"in": 99}),
    "kept": lambda m: m["examples"].update(kept=5, rejected=m["examples"]["rejected"] + 1),
    "tokens": lambda m: m["tokens"].update(total=1),
    "eos": lambda m: m["model"].update(eos_token_id=0),
    "pad": lambda m: m["model"].update(pad_token_id=3),
    "tokenizer": lambda m: m["model"].update(tokenizer_sha256="0" * 64),
    "template": lambda m: m["model"].update(chat_template_sha256="0" * 64),
    "input": lambda m: m["inputs"][0].update(sha256="0" * 64),
    "length": lambda m: m.update(max_length=16),
    "layout": lambda m: m.update(layout="padded"),
    "shard": lambda m: m["splits"]["train"]["shards"][0].update(tokens=1),
    "split": lambda m: m["splits"].pop("train"),
    "files": lambda m: m["files"].pop("serving.json"),
}


@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_is_found(
    copy: Path, cache_dir: Path, name: str, resealed: bool
) -> None:
    """By its seal; and where somebody sealed it anew, by what it says."""
    path = copy / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    EDITS[name](content)
    write_json(path, seal.sealed(content) if resealed else content)
    found = check(copy, cache_dir)
    assert found.faults
    assert resealed or "manifest" in codes(found)


def resealed(folder: Path, *names: str) -> None:
    """The manifest made to agree with files that were changed."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    for name in names:
        content["files"][name] = file_hash.sha256(folder / name)
        for shard in content["splits"]["train"]["shards"]:
            if shard["path"] == name:
                shard["sha256"] = file_hash.sha256(folder / name)
    write_json(path, seal.sealed(content))


def test_a_swapped_tokenizer_is_found(copy: Path, cache_dir: Path) -> None:
    """Even one that the manifest's hashes were made to agree with."""
    other = resolve("qwen3-0.6b", cache_dir, Overrides()).tokenizer_json
    (copy / "tokenizer" / "tokenizer.json").write_bytes(other)
    found = codes(check(copy, cache_dir))
    assert found["hash"] == {"tokenizer/tokenizer.json"}
    assert "tokenizer" in found
    resealed(copy, "tokenizer/tokenizer.json")
    assert "tokenizer" in codes(check(copy, cache_dir))


def rewrite(path: Path, rows: list[dict[str, Any]]) -> None:
    """The shard with other rows."""
    schema = read(path).schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def test_a_row_changed_with_all_its_hashes_is_found(copy: Path, cache_dir: Path) -> None:
    """What no law forbids, the source still tells: the row is made again, and is another."""
    rows = read(copy / SHARD).to_pylist()
    for side in ("chosen_ids", "rejected_ids"):
        rows[2][side][-2] += 1
    rewrite(copy / SHARD, rows)
    resealed(copy, SHARD)
    found = check(copy, cache_dir)
    assert codes(found) == {"made_again": {rows[2]["row_id"]}}
    rows[2]["rejected_ids"] = rows[2]["chosen_ids"]
    rewrite(copy / SHARD, rows)
    resealed(copy, SHARD)
    named = codes(check(copy, cache_dir))["chosen_differs"]
    assert named == {f"{rows[2]['row_id']} {SHARD}"}


def test_a_source_that_changed_is_no_fault(
    copy: Path, cache_dir: Path, source: Path, tmp_path: Path
) -> None:
    """It is said that nothing was made again, and why."""
    record = orjson.loads((copy / "run.json").read_bytes())
    moved = tmp_path / "pairs.jsonl"
    moved.write_bytes(source.read_bytes() + b"\n")
    record["inputs"] = [str(moved)]
    write_json(copy / "run.json", seal.sealed(record))
    found = check(copy, cache_dir)
    assert found.faults == []
    assert found.rows_made_again == 0
    assert "not the file that the build was made from" in found.notes[0]
    moved.unlink()
    assert "No row was rebuilt" in check(copy, cache_dir).notes[0]


def test_a_folder_that_is_none(tmp_path: Path, cache_dir: Path) -> None:
    """A wrong path is a wrong command; a folder without a manifest is a fault."""
    with pytest.raises(UsageError):
        check(tmp_path / "nowhere", cache_dir)
    assert codes(check(tmp_path, cache_dir)) == {"missing": {"manifest.json"}}


def test_on_the_command_line(pipeline: Run, copy: Path) -> None:
    """0 and a sentence, or 3 and every fault; --json says the same."""
    ran = pipeline("check", copy)
    assert ran.status == 0, ran.err
    assert "rebuilt from the source" in ran.out
    (copy / "serving.json").write_text("{}")
    ran = pipeline("check", copy, "--json")
    assert ran.status == 3
    assert "problem: serving.json: hash" in ran.err
    found = json.loads(ran.out)
    assert not found["passed"]
    assert found["faults"][0]["where"] == "serving.json"


@pytest.mark.parametrize(
    ("task", "data", "layout"),
    [
        ("sft", "sft", "packed"),
        ("sft", "sft/zh_dialogues.jsonl", "padded"),
        ("prm", "prm/alternatives.jsonl", "packed"),
        ("prm", "prm/first_error.json", "padded"),
        ("rm", "rm/pairs.jsonl", "padded"),
    ],
)
def test_every_layout_is_checked(
    tmp_path: Path, cache_dir: Path, task: str, data: str, layout: str
) -> None:
    """Good builds of every kind have no fault, with a test side and without duplicates."""
    config = Config.of(
        task, (str(SAMPLES / data),), "qwen2-1.5b", tmp_path / "out", layout=layout,
        cache_dir=cache_dir, workers=1, max_reject=1.0, dedup=True, test_size=0.4, shuffle=True,
        seed=3,
    )  # fmt: skip
    pipeline.builder.build.build(config, lambda *_: None)
    found = check(tmp_path / "out", cache_dir)
    assert found.faults == []
    assert found.rows_made_again > 0
