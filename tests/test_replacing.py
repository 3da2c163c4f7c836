"""What a build may take the place of, and where it is one of several versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Make, Run, few, files_of, read_manifest, write_rows

import posttrain_pipeline as pp
from pipeline.builds import lease, limits, versions
from pipeline.builds.build import Build
from pipeline.manifest import dataset_files
from pipeline.manifest.counts import DRIFTS
from pipeline.options.config import Config
from pipeline.options.paths import BY_RECIPE
from pipeline.options.recipe import builds_of
from stages.errors import DataError, UsageError

GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b")


def rows(path: Path, count: int, words: int = 1) -> Path:
    """Questions with answers of so many words."""
    return write_rows(
        path,
        ({"question": f"Count {n}.", "answer": " ".join([f"n{n}"] * words)} for n in range(count)),
    )


def test_another_task_or_model_asks(pipeline: Run, tmp_path: Path) -> None:
    """Before any row is encoded; the old build stays until --replace."""
    sft = ("run", "sft", GOOD, "-o", "out")
    pairs = ("run", "rm", SAMPLES / "rm" / "pairs.jsonl", "-o", "out", "--max-reject", "1")
    pipeline(*sft, *MODEL).ended()
    before = files_of(tmp_path / "out", with_run=True)
    for command in ((*pairs, *MODEL), (*sft, "--model", "qwen2.5-7b-instruct")):
        pipeline(*command).refused(
            2, "out is a build of sft for qwen2-1.5b; this one would be", "--replace"
        )
        assert files_of(tmp_path / "out", with_run=True) == before
    pipeline(*pairs, *MODEL, "--replace").ended()
    assert read_manifest(tmp_path / "out")["task"] == "rm"


@pytest.mark.slow
def test_a_build_that_lost_most_rows_asks(pipeline: Run, tmp_path: Path) -> None:
    """More than half of them, and more than a few; what it would have been is kept as refused."""
    data = tmp_path / "rows.jsonl"
    command = ("run", "sft", data, *MODEL, "-o", "out")
    rows(data, 300)
    pipeline(*command).ended()
    before = files_of(tmp_path / "out", with_run=True)
    rows(data, 140)
    ran = pipeline(*command, "--json")
    told = json.loads(ran.out)
    assert (ran.status, told["status"]) == (3, "refused")
    assert told["figures"]["drift"] == {
        "rows": {"before": 300, "after": 140, "change": -0.533333, "limit": 0.5}
    }
    assert "rows: 300 -> 140 (-53.3%; the limit is 50.0%)" in told["message"]
    assert "--replace, or allow it with --drift rows=0.54" in told["remedy"]
    assert "Change against the build before" in Path(tmp_path, told["paths"]["report"]).read_text()
    assert files_of(tmp_path / "out", with_run=True) == before
    pipeline(*command, "--drift", "rows=0.54").ended()
    rows(data, 60)
    pipeline(*command).ended()  # 80 rows fewer: a small build is somebody's trial


@pytest.mark.slow
def test_limits_of_a_recipe(make: Make, tmp_path: Path) -> None:
    """Rows, trained tokens and shares of sources; --replace agrees to any change."""
    one, two = tmp_path / "data" / "one.jsonl", tmp_path / "data" / "two.jsonl"
    one.parent.mkdir()
    rows(one, 100)
    rows(two, 100)
    make("sft", one.parent)
    rows(two, 130)
    with pytest.raises(DataError) as refused:
        make("sft", one.parent, drift={"rows": 0.14, "trained_tokens": 9.0, "source_share": 0.05})
    assert refused.value.remedy.startswith(
        "If this is meant, publish it with --replace, or allow it with --drift rows=0.15 "
        "--drift trained_tokens=9 --drift source_share=0.07. Why the build was refused is in"
    )
    for limit, value, says in (
        ("rows", 0.14, "rows: 200 -> 230"),
        ("trained_tokens", 0.1, "trained_tokens: "),
        ("source_share", 0.05, "source_share of one.jsonl: 0.5 -> 0.4"),
    ):
        with pytest.raises(DataError, match=says):
            make("sft", one.parent, drift={limit: value})
    make("sft", one.parent, drift={"rows": 0.15, "source_share": 0.1})
    rows(two, 10, words=50)
    made = make("sft", one.parent, drift={"rows": 0.0}, replace=True)
    assert read_manifest(made)["rows"]["used"] == 110


@pytest.mark.slow
def test_limits_of_sources(pipeline: Run, tmp_path: Path) -> None:
    """By name, whatever their files are called: the share of what is trained on."""
    rows(tmp_path / "a.jsonl", 50)
    rows(tmp_path / "b.jsonl", 50, words=3)
    sources = "".join(
        f'[[source]]\nname = "{name}"\ndata = ["{file}.jsonl"]\n'
        for name, file in (("math", "a"), ("talk", "b"))
    )
    head = 'task = "sft"\nmodel = "qwen2-1.5b"\noutput = "out"\nkeep = 0\n'
    head += "drift.source_share = 0.05\n"
    (tmp_path / "r.toml").write_text(head + sources)
    pipeline("build", "r.toml").ended()
    before = {one["name"]: one["share"] for one in read_manifest(tmp_path / "out")["sources"]}
    (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")
    (tmp_path / "r.toml").write_text(head + sources.replace("b.jsonl", "c.jsonl"))
    pipeline("build", "r.toml").ended()
    rows(tmp_path / "c.jsonl", 80, words=3)
    over = pipeline("build", "r.toml", "--json").told["figures"]["drift"]
    assert set(over) == {"source_share of math", "source_share of talk"}
    assert over["source_share of math"]["before"] == before["math"]
    pipeline("build", "r.toml", "--drift", "source_share=0.2").ended()


def test_a_limit_that_is_none_is_refused(pipeline: Run) -> None:
    """Before anything is read. Every limit that there is can be given."""
    assert set(DRIFTS) == {limits.ROWS, limits.TRAINED, limits.SHARE}
    for given_, says in (("row=1", "is not a limit"), ("rows=x", "NUMBER=SHARE")):
        pipeline("run", "sft", GOOD, *MODEL, "--drift", given_).refused(2, says)


@pytest.fixture(scope="module")
def small(built: Make) -> Build:
    """A small build."""
    return Build.open(built("sft", GOOD))


def _like(build: Any, used: int, trained: int) -> Any:
    manifest = build.manifest
    from dataclasses import replace

    rows_ = replace(manifest.rows, used=used)
    tokens = replace(manifest.tokens, trained=trained)
    return replace(build, manifest=replace(manifest, rows=rows_, tokens=tokens))


@given(
    st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 9000), st.integers(0, 9000),
    st.floats(0, 2),
)  # fmt: skip
def test_limits_are_what_they_say(
    small: Build, old: int, new: int, before: int, after: int, limit: float
) -> None:
    """A number is refused when it changed by more than the limit, relative to the build before."""
    pair = (_like(small, old, before), _like(small, new, after))
    over = limits.exceeded(*pair, {"rows": limit, "trained_tokens": limit})
    for name, one, other in (("rows", old, new), ("trained_tokens", before, after)):
        changed = abs(other - one) / one if one else (float("inf") if other else 0.0)
        assert (name in over) == (changed > limit) or abs(changed - limit) < 1e-9
    flags = limits.allowing(over, {"rows": limit, "trained_tokens": limit})
    if flags:  # those that a message offers are enough
        offered = dict(flag.split("=") for flag in flags.replace("--drift", "").split())
        assert not limits.exceeded(*pair, {name: float(one) for name, one in offered.items()})
    else:
        assert (old == 0 < new) or (before == 0 < after)
    lost = old - new >= 100 and new < old * 0.5
    assert ("rows" in limits.exceeded(*pair, {})) == lost


def test_what_other_programs_leave_blocks_no_build(pipeline: Run, tmp_path: Path) -> None:
    """A cache of datasets and what a file browser writes: named, and gone with the build."""
    data = rows(tmp_path / "rows.jsonl", 20)
    command = ("run", "sft", data, *MODEL, "-o", "out", "--layout", "ragged")
    pipeline(*command).ended()
    out = tmp_path / "out"
    loaded = datasets.load_from_disk(str(out))["train"]
    loaded.map(lambda row: {"n": len(row["input_ids"])})
    (out / ".DS_Store").write_text("")
    caches = [path.name for path in (out / "train").glob("cache-*.arrow")]
    assert len(caches) == 1
    again = pipeline(*command, "--json")
    assert json.loads(again.out)["status"] == "unchanged"
    left = [".DS_Store", f"train/{caches[0]}"]
    assert json.loads(again.out)["figures"]["left_by_other_programs"] == left
    assert f"by other programs, in it, and not part of it: {', '.join(left)}" in again.err
    checked = pipeline("check", "out").ended()
    assert ".DS_Store was left by another program" in checked.err
    rows(data, 21)
    ran = pipeline(*command).ended()
    assert f"by other programs, removed with the build before: {', '.join(left)}" in ran.err
    assert not any((out / name).exists() for name in left)


def test_files_of_the_user_s_are_named(pipeline: Run, tmp_path: Path) -> None:
    """Neither a folder with another program's manifest nor a build with notes in it is replaced."""
    out = tmp_path / "out"
    command = ("run", "sft", GOOD, *MODEL, "-o", "out")
    out.mkdir()
    (out / "manifest.json").write_text('{"name": "my web app", "files": {}}')
    pipeline(*command).refused(2)
    (out / "manifest.json").unlink()
    pipeline(*command).ended()
    notes = out / "train" / "notes.md"
    notes.write_text("mine")
    ran = pipeline(*command, "--layout", "ragged")
    ran.refused(2, "files that are not of the build: train/notes.md")
    assert notes.read_text() == "mine"
    shutil.rmtree(out / "tokenizer")
    notes.unlink()
    pipeline(*command).ended()


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("train/cache-1f2e.arrow", True), ("train/cache-1f_00000_of_00002.arrow", True),
        ("train/tmpab12_x9z", True), (".DS_Store", True), ("a/._b", True), ("report.html~", True),
        (".manifest.json.swp", True), ("x/.ipynb_checkpoints/a.ipynb", True), (".nfs000a", True),
        ("notes.txt", False), ("train/data-1.arrow", False), ("tmp/thesis.tex", False),
        ("cache/x.arrow", False), ("manifest.json", False), ("tmpfile.txt", False),
    ],
)  # fmt: skip
def test_which_files_are_nobody_s(name: str, is_one: bool) -> None:
    """By their names; anything else is somebody's."""
    assert dataset_files.is_one(name) is is_one


def test_kinds_are_compared_before_work(small: Build) -> None:
    """The same task and model pass."""
    limits.require_same_kind(small.manifest, "sft", "qwen2-1.5b", "out")
    with pytest.raises(UsageError, match="would be rm"):
        limits.require_same_kind(small.manifest, "rm", "qwen2-1.5b", "out")


LINES = (SAMPLES / "sft" / "word_problems.jsonl").read_text("utf-8").splitlines(keepends=True)
HEAD = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\noutput = "out"\n'
COMMAND = ("run", "sft", "rows.jsonl", "--model", "qwen2-1.5b", "-o", "out")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """It says nothing of ``keep``."""
    _lines(tmp_path, 4)
    path = tmp_path / "r.toml"
    path.write_text(HEAD)
    return path


def _lines(folder: Path, count: int) -> None:
    """The data, with so many _lines."""
    (folder / "rows.jsonl").write_text("".join(LINES[:count]), "utf-8")


def test_a_new_output_is_a_folder_of_versions(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """With a link to the last, a line for each run, and nothing to say about it."""
    for count, status in ((4, "built"), (4, "unchanged"), (8, "built")):
        _lines(tmp_path, count)
        ran = pipeline("build", recipe, "--json", "--quiet")
        found = json.loads(ran.out)
        assert (ran.status, found["status"], found["figures"]["notes"]) == (0, status, []), ran.err
    out = tmp_path / "out"
    assert (out / "current").resolve().name == found["build_id"]
    assert len(versions.versions(out)) == 2
    assert len((out / lease.HISTORY).read_text().splitlines()) == 3
    assert not (out / "manifest.json").exists()


def test_as_many_stay_as_the_default_says(recipe: Path) -> None:
    """Of a recipe; what a command and a call make is one build."""
    (config,) = builds_of(recipe)
    assert (config.run.keep, config.notes) == (BY_RECIPE, ()) == (7, ())
    assert Config.of("sft", ("rows.jsonl",), "qwen2-1.5b", Path("out")).run.keep == 0


def test_one_build_stays_one(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """A schedule goes on as it was, and every summary says how versions are kept."""
    out = tmp_path / "out"
    pipeline(*COMMAND, "--quiet").ended()
    before = (out / "manifest.json").read_bytes()
    ran = pipeline("build", recipe).ended()
    assert "out is one build and stays one" in ran.err
    _lines(tmp_path, 8)
    ran = pipeline("build", recipe, "--json")
    (note,) = json.loads(ran.out)["figures"]["notes"]
    assert "keep = 0" in note
    assert note in ran.err
    assert (out / "manifest.json").read_bytes() != before
    assert not (out / "current").is_symlink()
    assert not (out / lease.HISTORY).exists()
    recipe.write_text(f"{HEAD}keep = 0\n")
    assert "stays one" not in pipeline("build", recipe).err


@pytest.mark.parametrize("said", few(["flag", "recipe", "set"], 1))
def test_one_build_is_made_where_it_is_asked_for(
    pipeline: Run, tmp_path: Path, recipe: Path, said: str
) -> None:
    """By a flag, also where the recipe says otherwise; by the recipe; by ``--set``."""
    recipe.write_text(HEAD + {"flag": "keep = 3\n", "recipe": "keep = 0\n", "set": ""}[said])
    more = {"flag": ("--keep", 0), "recipe": (), "set": ("--set", "keep=0")}[said]
    ran = pipeline("build", recipe, *more).ended()
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert "stays one" not in ran.err


def test_a_folder_of_somebody_else_is_refused(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """With or without a file of the name that ours has."""
    (tmp_path / "out").mkdir()
    for name in ("notes.txt", "manifest.json"):
        (tmp_path / "out" / name).write_text("{}")
        pipeline("build", recipe).refused(2, "has files in it")
        assert (tmp_path / "out" / name).read_text() == "{}"


def test_every_build_of_a_recipe_has_a_folder_of_its_own(
    pipeline: Run, tmp_path: Path, recipe: Path
) -> None:
    """Also where one of them was one build before, and one says so."""
    pipeline(*COMMAND[:-1], "b", "--quiet").ended()
    builds = "".join(f'[[build]]\noutput = "{name}"\n' for name in "abc")
    recipe.write_text(HEAD.replace('output = "out"\n', "") + builds + "keep = 0\n")
    told = pipeline("build", recipe, "--json", "--quiet").ended().told
    notes = [one["figures"]["notes"] for one in told["builds"]]
    assert [len(one) for one in notes] == [0, 1, 0]
    assert (tmp_path / "a" / "current" / "manifest.json").is_file()
    assert len(versions.versions(tmp_path / "a")) == 1
    for name in "bc":
        assert (tmp_path / name / "manifest.json").is_file()


def test_a_call_makes_one_build(tmp_path: Path, cache_dir: Path) -> None:
    """With sources too, though these are read as a recipe's are."""
    _lines(tmp_path, 4)
    source = [{"name": "math", "data": str(tmp_path / "rows.jsonl")}]
    made = {"model": "qwen2-1.5b", "output": tmp_path / "out", "cache_dir": cache_dir}
    pp.run("sft", source=source, **made)
    assert (tmp_path / "out" / "manifest.json").is_file()
