"""README.md of builds and exports: ``datasets`` loads by it, and a build is made of it again."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT, SAMPLES, Run, few, files_of, read_manifest, write_rows
from test_check import SHARD, resealed, rewrite

from pipeline.builder.exporting import export_build
from pipeline.builds.build import Build
from pipeline.builds.stored import read_file as read
from pipeline.publish.check import check
from pipeline.report import card
from pipeline.report.card import Publisher, block, code, plain

SOURCES = {
    "sft": SAMPLES / "sft" / "word_problems.jsonl",
    "rm": SAMPLES / "rm" / "pairs_margin.jsonl",
    "prm": SAMPLES / "prm" / "stepwise.jsonl",
}


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch) -> None:
    """``datasets`` converts what it loads into a cache of this test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def loads_both_ways(folder: Path) -> None:
    """Both loaders give the rows of the manifest, in the same columns and equal."""
    recorded = {name: split["rows"] for name, split in read_manifest(folder)["splits"].items()}
    one, other = datasets.load_dataset(str(folder)), datasets.load_from_disk(str(folder))
    assert {name: len(rows) for name, rows in one.items()} == recorded
    assert {name: len(rows) for name, rows in other.items()} == recorded
    for name in recorded:
        assert one[name].to_list() == other[name].to_list()


@pytest.mark.parametrize(
    ("task", "trainer"), few([("sft", "megatron"), ("rm", "medicalgpt"), ("prm", "trl")], 1)
)
def test_a_build_and_the_export_in_it_load_both_ways(make, task, trainer):
    """Beside a trainer's shards, in other columns or in another container, too."""
    folder = make(task, SOURCES[task], trainer=trainer, test_size=0.3)
    loads_both_ways(folder)
    loads_both_ways(folder / trainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "layout"),
    [(t, one) for t in SOURCES for one in ("packed", "ragged", "padded")[t == "rm" :]],
)
def test_every_layout_and_every_export_loads_both_ways(make, task, layout):
    """Of every trainer that takes it."""
    folder = make(task, SOURCES[task], layout=layout, test_size=0.3)
    loads_both_ways(folder)
    for name, verdict in read_manifest(folder)["trainers"].items():
        if verdict["supported"]:
            export_build(name, folder, folder.with_name(name))
            loads_both_ways(folder.with_name(name))


def test_load_dataset_refuses_a_folder_with_fewer_rows(make):
    """A shard that was cut, or is missing, is not loaded in silence."""
    folder = make("rm", SOURCES["rm"])
    (shard,) = folder.glob("train/*.arrow")
    rewrite(shard, read(shard).to_pylist()[1:])
    with pytest.raises(datasets.exceptions.NonMatchingSplitsSizesError):
        datasets.load_dataset(str(folder))


def test_check_compares_what_datasets_reads_with_what_the_trainer_reads(make, tmp_path):
    """The rows in both files of a shard are the same, or check says that they are not."""
    folder = tmp_path / "e"
    export_build("medicalgpt", make("rm", SOURCES["rm"]), folder)
    assert check(folder, tmp_path).faults == []
    rewrite(folder / SHARD, read(folder / SHARD).to_pylist()[::-1])
    resealed(folder, SHARD)
    (fault,) = check(folder, tmp_path).faults
    assert (fault.where, fault.code) == (SHARD, "datasets")


def test_the_front_matter_is_what_the_hub_reads(make):
    """Parsed by the hub's own library; texts of the publisher cannot end it."""
    folder = make("prm", SOURCES["prm"], test_size=0.3)
    found = DatasetCard.load(folder / "README.md").data.to_dict()
    assert [one["split"] for one in found["configs"][0]["data_files"]] == ["train", "test"]
    assert found["tags"] == ["posttrain-pipeline", "prm", "qwen2-1.5b"]
    nasty = Publisher(title='a: "b"\n---\n# c', license="cc-by-4.0", origins=("x | y\n# z",))
    text = card.make(Build.open(folder), nasty)
    (folder / "README.md").write_text(text)
    found = DatasetCard.load(folder / "README.md").data.to_dict()
    assert found["pretty_name"] == nasty.title
    assert found["license"] == nasty.license
    assert "\n# c" not in text
    assert "\n# z" not in text


def require_the_same(pipeline: Run, folder: Path) -> str:
    """Of the recipe in a build's card, beside files of the names that it gives; the recipe."""
    text = (folder / "README.md").read_text("utf-8")
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (folder.parent / "again.toml").write_text(f'output = "again"\nkeep = 0\n{recipe}', "utf-8")
    pipeline("build", "again.toml").ended()
    again = folder.with_name("again")
    assert read_manifest(again) == read_manifest(folder)
    assert (again / "README.md").read_text("utf-8") == text
    return str(recipe)


@pytest.mark.slow
def test_the_recipe_in_the_card_builds_the_same(pipeline, make, tmp_path):
    """With options of many kinds."""
    options: dict[str, Any] = {
        "map": {"prompt": "question", "completion": "solution"},
        "system": 'Say "why".\n\x7f',
        "stop": ("</answer>",),
        "test_size": 0.25,
        "shuffle": True,
        "seed": -3,
        "tolerance": {"duplicates.warn": 0.5},
        "max_length": 512,
        "trainer": "trl",
    }
    rows = [json.loads(line) for line in SOURCES["sft"].read_text().splitlines()]
    asked = [row.get("messages", row) for row in rows]
    data = tmp_path / "rows.jsonl"
    texts = [
        {"question": f"{i}: {json.dumps(one)}", "solution": "2"} for i, one in enumerate(asked)
    ]
    write_rows(data, texts)
    folder = make("sft", data, **options)
    assert tomllib.loads(require_the_same(pipeline, folder))["data"] == ["rows.jsonl"]


@pytest.mark.slow
def test_the_card_has_the_sources_of_the_recipe(pipeline, tmp_path):
    """Their licences, origins and figures; and a recipe that builds the same."""
    (tmp_path / "chats").mkdir()
    shutil.copyfile(SOURCES["sft"], tmp_path / "word_problems.jsonl")
    shutil.copyfile(SAMPLES / "sft" / "chat.jsonl", tmp_path / "chats" / "chat.jsonl")
    shutil.copyfile(ROOT / "tests" / "tables" / "two_sources.toml", tmp_path / "r.toml")
    pipeline("build", "r.toml").ended()
    card_of = DatasetCard.load(tmp_path / "out" / "README.md")
    found = card_of.data.to_dict()
    assert found["pretty_name"] == "Problems | chats"
    assert found["license"] == ["cc-by-4.0", "other"]
    assert found["license_name"] == "our-data-terms-v2"
    lines = card_of.text.splitlines()
    (line,) = [one for one in lines if one.startswith("| `problems` |")]
    used = read_manifest(tmp_path / "out")["sources"][0]["splits"]["train"]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:4] == ["CC-BY-4.0", "https://example.org/problems", "1"]
    assert cells[5:] == [f"{used['examples']:,}", f"{used['trained']:,}"]
    assert "- our own collection" in lines
    assert any("Our Data Terms \\(v2\\)" in one for one in lines)
    loads_both_ways(tmp_path / "out")

    shutil.copyfile(SAMPLES / "sft" / "chat.jsonl", tmp_path / "chat.jsonl")
    require_the_same(pipeline, tmp_path / "out")

    pipeline("build", "r.toml", "--license", "mit", "-o", "licensed", "--json").ended()
    found = DatasetCard.load(tmp_path / "licensed" / "README.md").data.to_dict()
    assert (found["license"], "license_name" in found) == ("mit", False)


@pytest.mark.slow
def test_the_recipe_in_the_card_names_the_files_of_the_test_split(pipeline, tmp_path):
    """With options of all rows, and a filter."""
    lines = SOURCES["sft"].read_text().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(lines[:9]))
    (tmp_path / "held.jsonl").write_text("".join(lines[9:]))
    command = ("run", "sft", "a.jsonl", "--test", "held.jsonl", "--model", "qwen2-1.5b")
    given = ("--system", "Be brief.", "--train-on", "last", "--filter", "n_tokens < 400")
    pipeline(*command, *given, "--origin", "here", "-o", "out").ended()
    recipe = require_the_same(pipeline, tmp_path / "out")
    assert tomllib.loads(recipe)["test"] == ["held.jsonl"]


@given(st.text(max_size=40))
def test_no_text_is_markup(text):
    """A cell is one line without a bar that would end it; a block is ended by its fence alone."""
    for cell in (plain(text), code(text)):
        assert len(cell.splitlines()) <= 1
        assert not re.search(r"(?<!\\)(\\\\)*\|", cell.replace("\\\\", ""))
    fence, *lines, end = block(text, "").split("\n")
    assert end == fence
    assert fence not in lines


def test_a_card_says_nothing_of_this_machine(make, tmp_path):
    """No path; and the build has the same bytes wherever it is made, and by two workers."""
    first = make("rm", SOURCES["rm"])
    moved = tmp_path / "elsewhere" / SOURCES["rm"].name
    moved.parent.mkdir()
    shutil.copyfile(SOURCES["rm"], moved)
    assert files_of(make("rm", moved, "other", workers=2)) == files_of(first)
    assert str(tmp_path) not in (first / "README.md").read_text("utf-8")
