"""Builds from the command line: what is on disk is what was promised."""

import polars as pl
import pyarrow as pa
import pytest
from datasets import load_from_disk
from support import SAMPLE_OF, SAMPLES, read_manifest, read_rows, table, write_rows

COLUMNS = {
    (task, layout): columns
    for task, layouts in table("columns.toml").items()
    for layout, columns in layouts.items()
}


def spelled(kind: pa.DataType) -> str:
    """A column's type the way the table above spells it."""
    if not pa.types.is_list(kind):
        return "string" if pa.types.is_string(kind) else f"scalar {kind}"
    return "list<string>" if pa.types.is_string(kind.value_type) else str(kind.value_type)


@pytest.mark.parametrize(("task", "layout"), COLUMNS)
def test_columns_and_readers(built, task, layout):
    """Every layout has its columns, and datasets, pyarrow and polars read the same rows."""
    folder = built(task, SAMPLE_OF[task], "--layout", layout)
    manifest = read_manifest(folder)
    rows = load_from_disk(str(folder))["train"]
    assert len(rows) == manifest["splits"]["train"]["rows"]
    shard = folder / manifest["splits"]["train"]["shards"][0]["path"]
    with pa.memory_map(str(shard)) as source:
        table = pa.ipc.open_stream(source).read_all()
    found = {field.name: spelled(field.type) for field in table.schema}
    assert found == COLUMNS[task, layout]
    assert table.to_pylist() == list(rows)
    assert pl.read_ipc_stream(shard).to_dicts() == table.to_pylist()


def test_a_test_split_takes_whole_rows(built, tmp_path):
    """All sequences of a row, #0, #1, ..., go to one side, and no example is lost."""
    data = []
    for copy in range(10):
        for row in read_rows(SAMPLES / "prm" / "alternatives.jsonl"):
            row["question"]["problem"] += f" ({copy})"  # equal examples are on one side
            data.append(row | {"n": copy})
    source = write_rows(tmp_path / "rows.jsonl", data)
    folder = built("prm", source, "--layout", "ragged", "--test-size", 0.5, "--group-by", "n")
    sides = load_from_disk(str(folder))
    rows = {side: {i.partition("#")[0] for i in sides[side]["row_id"]} for side in sides}
    assert not rows["train"] & rows["test"]
    assert len(rows["train"]) + len(rows["test"]) == 20
    names = {name for side in sides.values() for name in side["row_id"]}
    assert {f"rows.jsonl:{name}" for name in ("1#0", "1#1", "1#2", "2#1")} <= names
    assert read_manifest(folder)["sides"]["by"] == "column"


def test_manifest_has_its_keys_and_no_clock(built):
    """The manifest names every file by hash, and holds no absolute path."""
    folder = built("prm", SAMPLE_OF["prm"], "--layout", "packed")
    manifest = read_manifest(folder)
    wanted = (
        "schema_version version build_id recipe_fingerprint task layout max_length seed model prm "
        "format inputs rows examples tokens packing splits probes encoder trainers files"
    ).split()
    assert set(wanted) <= set(manifest)
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert set(manifest["files"]) == present - {"manifest.json", "run.json"}
    assert str(folder) not in (folder / "manifest.json").read_text("utf-8")
    assert manifest["tokens"]["trained"] == 42
    assert manifest["encoder"]["parity"] == {"sampled": 14, "mismatches": 0}


def test_input_order_is_kept(make, tmp_path):
    """Rows stand as they came; packs by their first example, examples in a pack as they came."""
    rows = [{"question": f"What is {i}?", "answer": f"{i} " * (i * 37 % 50 + 1)} for i in range(40)]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    names = [f"rows.jsonl:{i + 1}" for i in range(len(rows))]
    ragged = load_from_disk(str(make("sft", data, "a", layout="ragged")))["train"]
    assert ragged["row_id"][:] == names
    packed = load_from_disk(str(make("sft", data, "b", layout="packed", max_length=256)))["train"]
    places = [[names.index(name) for name in pack] for pack in packed["row_ids"][:]]
    assert all(pack == sorted(pack) for pack in places)
    assert [pack[0] for pack in places] == sorted(pack[0] for pack in places)
    assert len(places) > 2
