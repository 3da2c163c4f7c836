"""``pipeline check`` on an export: its files by hash, its rows as they read in our columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support import SAMPLES, Ran

from pipeline import exports
from pipeline.builder.build import build
from pipeline.builder.exporting import export_build
from pipeline.builds.publish import MANIFEST
from pipeline.manifest import seal
from pipeline.manifest.dataset_files import write_json
from pipeline.options.config import Config
from pipeline.publish.check import check
from pipeline.tasks import kind_of
from stages.files import file_hash

Run = Callable[..., Ran]
SHARD = "train/data-00000-of-00001.arrow"
SOURCE = {
    "sft": "sft/word_problems.jsonl",
    "rm": "rm/pairs.jsonl",
    "prm": "prm/math_shepherd.jsonl",
}
# Every third trainer with one of its tasks, in turn; the others are slow.
TAKEN = [
    pytest.param(
        name, task, marks=[] if turn == at % len(takes) and at % 6 == 0 else [pytest.mark.slow]
    )
    for at, name in enumerate(exports.names())
    for takes in [[t for t in SOURCE if kind_of(t).trains_as in exports.load(name).takes]]
    for turn, task in enumerate(takes)
]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> dict[str, Path]:
    """One build a task, one example a row."""
    root = tmp_path_factory.mktemp("builds")
    for task, name in SOURCE.items():
        config = Config.of(
            task,
            (str(SAMPLES / name),),
            "qwen2-1.5b",
            root / task,
            layout="ragged",
            workers=1,
            cache_dir=cache_dir,
        )
        build(config, lambda what, done, total: None)
    return {task: root / task for task in SOURCE}


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("name", "task"), TAKEN)
def test_an_export_is_sound_and_every_file_of_it_counts(
    builds: dict[str, Path], tmp_path: Path, name: str, task: str
) -> None:
    """Nothing is found in it as it was written; of a changed or missing file the name."""
    export_build(name, builds[task], tmp_path / "out")
    found = check(tmp_path / "out", tmp_path)
    assert not found.faults
    assert found.verdict is not None
    assert found.verdict.summary()["judged"] > 10
    for path in [p for p in (tmp_path / "out").rglob("*") if p.is_file()]:
        where, whole = path.relative_to(tmp_path / "out").as_posix(), path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert where in {fault.where for fault in check(tmp_path / "out", tmp_path).faults}
        if where != MANIFEST:  # without one the folder is not an export
            path.unlink()
            assert where in {fault.where for fault in check(tmp_path / "out", tmp_path).faults}
        path.write_bytes(whole)


def test_rows_are_judged_even_when_all_hashes_are_written_anew(
    builds: dict[str, Path], tmp_path: Path
) -> None:
    """An answer whose end is not trained is found in a trainer's own columns."""
    export_build("axolotl", builds["sft"], tmp_path / "out")
    folder = tmp_path / "out"
    table = pa.ipc.open_stream((folder / SHARD).read_bytes()).read_all()
    labels = table.column("labels").to_pylist()
    last = max(i for i, label in enumerate(labels[0]) if label != -100)
    labels[0][last] = -100
    at = table.schema.get_field_index("labels")
    changed = table.set_column(at, table.schema.field(at), pa.array(labels, pa.list_(pa.int32())))
    with pa.ipc.new_stream(str(folder / SHARD), changed.schema) as writer:
        writer.write_table(changed)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    shard = manifest["splits"]["train"]["shards"][0]
    shard["sha256"] = manifest["files"][SHARD] = file_hash.sha256(folder / SHARD)
    shard["bytes"] = (folder / SHARD).stat().st_size
    write_json(folder / "manifest.json", seal.sealed(manifest))
    found = check(folder, tmp_path)
    assert {"turns_end_supervised", "counts_match"} <= {fault.code for fault in found.faults}
    assert any("word_problems.jsonl:1" in fault.where for fault in found.faults)


def test_the_command_says_what_an_export_is(
    pipeline: Run, builds: dict[str, Path], tmp_path: Path
) -> None:
    """check judges it and says what it left out; report sends its user to the build."""
    assert pipeline("export", "trl", builds["prm"], "-o", "out").status == 0
    ran = pipeline("check", "out")
    assert ran.status == 0, ran.err
    assert "its rows are not rebuilt" in ran.err
    ran = pipeline("report", "out")
    assert ran.status == 2
    assert "out is an export" in ran.err
