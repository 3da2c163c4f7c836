"""``pipeline check``: whatever is changed in a finished build or an export is found, and named."""

import functools
import json
import operator
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from support import SAMPLE_OF, SAMPLES, few, files_of, table, writable

from expectations.witness import turns
from pipeline import exports, tasks
from pipeline.builder import export_gate
from pipeline.builder.exporting import export_build
from pipeline.builds.build import Build
from pipeline.builds.publish import MANIFEST
from pipeline.builds.stored import read_file as read
from pipeline.manifest import dataset_files, json_records
from pipeline.publish.check import check
from pipeline.publish.checked_files import Checked
from stages.errors import UsageError
from stages.files import file_hash
from stages.tokenizers.resolve import Overrides, resolve

SOURCE = SAMPLES / "rm" / "pairs_margin.jsonl"
SHARD = "train/data-00000-of-00001.arrow"


@pytest.fixture
def good(built) -> Path:
    """A good build."""
    return built("rm", SOURCE)


@pytest.fixture
def copy(good, tmp_path) -> Path:
    """A copy to be damaged."""
    return writable(shutil.copytree(good, tmp_path / "copy"))


def codes(found: Checked) -> dict[str, set[str]]:
    """The places of the faults, by their code."""
    named: dict[str, set[str]] = {}
    for fault in found.faults:
        named.setdefault(fault.code, set()).add(fault.where)
    return named


def test_any_flipped_byte_is_found(copy, cache_dir):
    """In every file of the build, at any place, and the file is named. In a good build everything
    was looked at: the gate judged, and rows were rebuilt from the source."""
    draw = random.Random(0)
    whole = {name: data for name, data in files_of(copy, with_run=True).items() if data}
    assert {"manifest.json", "run.json", SHARD, "tokenizer/tokenizer.json"} <= {*whole}
    others = {*whole} - {"manifest.json", "run.json"}
    for names in ({"manifest.json"}, {"run.json"}, others, others):
        for name in names:
            data = bytearray(whole[name])
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            (copy / name).write_bytes(data)
        assert names <= {fault.where for fault in check(copy, cache_dir).faults}
        for name in names:
            (copy / name).write_bytes(whole[name])
    found = check(copy, cache_dir)
    assert (found.faults, found.notes) == ([], [])
    assert found.rows_made_again == 6
    assert found.verdict.passed


def test_what_is_missing_is_found(copy, cache_dir):
    """A shard, a list of rejects, a folder, the manifest."""
    names = (SHARD, "rejects.jsonl", "tokenizer")
    for name in names:
        (copy / name).rename(copy.with_name(Path(name).name))
    found = codes(check(copy, cache_dir))["missing"]
    assert all(any(where.startswith(name) for where in found) for name in names)
    (copy / MANIFEST).unlink()
    assert codes(check(copy, cache_dir))["missing"] == {MANIFEST}
    with pytest.raises(UsageError):  # a wrong path is a wrong command
        check(copy / "nowhere", cache_dir)


def test_what_does_not_belong_is_found(copy, cache_dir):
    """Another shard beside the build's own would be trained on by whoever globs."""
    shutil.copy(copy / SHARD, copy / "train" / "more.arrow")
    assert codes(check(copy, cache_dir)) == {"unknown": {"train/more.arrow"}}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("edits", few(table("edited_manifests.jsonl"), 4))
def test_an_edited_manifest_is_found(copy, cache_dir, edits):
    """By its seal, whatever it says; and where somebody sealed it anew, by what it says."""
    path = copy / "manifest.json"
    content = json.loads(path.read_bytes())
    for (*outer, last), value in edits:  # null: it is taken out
        inner = functools.reduce(operator.getitem, outer, content)
        inner.pop(last) if value is None else inner.update({last: value})
    dataset_files.write_json(path, json_records.sealed_text(content))
    assert check(copy, cache_dir).faults
    if edits[0][0][0] in ("rows", "files"):
        dataset_files.write_json(path, content)
        assert "manifest" in codes(check(copy, cache_dir))


def resealed(folder: Path, *names: str) -> None:
    """The manifest made to agree with files that were changed."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    for name in names:
        content["files"][name] = file_hash.sha256(folder / name)
        for shard in content["splits"]["train"]["shards"]:
            if shard["path"] == name:
                shard["sha256"] = content["files"][name]
                shard["bytes"] = (folder / name).stat().st_size
    dataset_files.write_json(path, json_records.sealed_text(content))


@pytest.mark.slow
def test_a_swapped_tokenizer_is_found(copy, cache_dir):
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


def test_a_row_changed_with_all_its_hashes_is_found(copy, cache_dir):
    """What no law forbids, the source still tells: to the witness, and to the row made again."""
    rows = read(copy / SHARD).to_pylist()
    for side in ("chosen_ids", "rejected_ids"):
        rows[2][side][-2] += 1
    rewrite(copy / SHARD, rows)
    resealed(copy, SHARD)
    found = check(copy, cache_dir)
    assert codes(found) == {one: {rows[2]["row_id"]} for one in ("made_again", "witness")}
    rows[2]["rejected_ids"] = rows[2]["chosen_ids"]
    rewrite(copy / SHARD, rows)
    resealed(copy, SHARD)
    named = codes(check(copy, cache_dir))["chosen_differs"]
    assert named == {f"{rows[2]['row_id']} {SHARD}"}


def test_the_witness_is_heard_again(copy, cache_dir, monkeypatch):
    """On a finished build, too, and what it finds is a fault of ours."""
    found = check(copy, cache_dir)
    assert (found.faults, found.witnessed) == ([], 6)
    monkeypatch.setattr(turns, "user", lambda text: {"role": "user", "content": f"{text}!"})
    found = check(copy, cache_dir)
    assert {fault.code for fault in found.faults} == {"witness"}
    assert {fault.where.partition(":")[0] for fault in found.faults} == {SOURCE.name}
    assert found.status == 1


def test_a_source_that_changed_is_no_fault(copy, cache_dir, tmp_path):
    """It is said that nothing was made again, and why."""
    record = orjson.loads((copy / "run.json").read_bytes())
    moved = tmp_path / SOURCE.name
    moved.write_bytes(SOURCE.read_bytes() + b"\n")
    record["inputs"] = [str(moved)]
    dataset_files.write_json(copy / "run.json", json_records.sealed_text(record))
    found = check(copy, cache_dir)
    assert found.faults == []
    assert found.rows_made_again == 0
    assert "not the file that the build was made from" in found.notes[0]
    moved.unlink()
    assert "No row was rebuilt" in check(copy, cache_dir).notes[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("task", "data", "layout"),
    few(
        [
            ("sft", "sft", "packed"),
            ("sft", "sft/zh_dialogues.jsonl", "padded"),
            ("prm", "prm/alternatives.jsonl", "packed"),
            ("prm", "prm/first_error.json", "padded"),
            ("rm", "rm/pairs.jsonl", "padded"),
        ][::-1],
        1,
    ),
)
def test_every_layout_is_checked(make, cache_dir, task, data, layout):
    """Good builds of every kind have no fault, with a test side and without duplicates."""
    options = {"layout": layout, "dedup": True, "test_size": 0.4, "shuffle": True, "seed": 3}
    found = check(make(task, SAMPLES / data, **options), cache_dir)
    assert found.faults == []
    assert found.rows_made_again > 0


TAKEN = [
    (name, task)
    for name in exports.names()
    for task in SAMPLE_OF
    if tasks.kind_of(task).trains_as in exports.load(name).takes
]


@pytest.fixture(scope="module")
def builds(built) -> dict[str, Path]:
    """One build a task, one example a row."""
    return {task: built(task, source, "--layout", "ragged") for task, source in SAMPLE_OF.items()}


@pytest.mark.great_expectations
@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "task"), few(TAKEN, 1))
def test_an_export_is_sound_and_every_file_of_it_counts(builds, tmp_path, name, task):
    """Nothing is found in it as it was written; of a changed or missing file the name."""
    export_build(name, builds[task], tmp_path / "out")
    found = check(tmp_path / "out", tmp_path)
    assert not found.faults
    assert found.verdict.judged > 10
    written = Build.open(tmp_path / "out")
    tokens = replace(written.manifest.tokens, padding=written.manifest.tokens.padding + 1)
    miscounted = replace(written, manifest=replace(written.manifest, tokens=tokens))
    assert [one.file for one in export_gate.problems(miscounted, None)] == [MANIFEST]
    whole = files_of(writable(tmp_path / "out"), with_run=True)

    def named(*names: str, gone: bool = False) -> bool:
        """Whether each of these files is named while all of them are changed, or gone."""
        for name in names:
            path, content = tmp_path / "out" / name, whole[name]
            path.unlink() if gone else path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        faults = {fault.where for fault in check(tmp_path / "out", tmp_path).faults}
        for name in names:
            (tmp_path / "out" / name).write_bytes(whole[name])
        return {*names} <= faults

    own = sorted(whole.keys() - {MANIFEST})  # without a manifest the folder is not an export
    assert named(MANIFEST)
    assert named(*own)
    assert named(*own, gone=True)


def test_rows_are_judged_even_when_all_hashes_are_written_anew(builds, tmp_path):
    """An answer whose end is not trained is found in a trainer's own columns."""
    export_build("axolotl", builds["sft"], tmp_path / "out")
    folder = writable(tmp_path / "out")
    rows = read(folder / SHARD).to_pylist()
    labels = rows[0]["labels"]
    labels[max(i for i, label in enumerate(labels) if label != -100)] = -100
    rewrite(folder / SHARD, rows)
    resealed(folder, SHARD)
    found = check(folder, tmp_path)
    assert {"turns_end_supervised", "counts_match"} <= {fault.code for fault in found.faults}
    assert any("word_problems.jsonl:1" in fault.where for fault in found.faults)
