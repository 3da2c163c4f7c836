"""Builds of a recipe are versions by default; what is one build already stays one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SAMPLES, Ran

import posttrain_pipeline as pp
from pipeline.builds import history, versions
from pipeline.options.config import Config
from pipeline.options.output import BY_RECIPE
from pipeline.options.recipe import builds_of

Run = Callable[..., Ran]
LINES = (SAMPLES / "sft" / "word_problems.jsonl").read_text("utf-8").splitlines(keepends=True)
HEAD = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\noutput = "out"\n'
COMMAND = ("run", "sft", "rows.jsonl", "--model", "qwen2-1.5b", "-o", "out")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """It says nothing of ``keep``."""
    rows(tmp_path, 4)
    path = tmp_path / "r.toml"
    path.write_text(HEAD)
    return path


def rows(folder: Path, count: int) -> None:
    """The data, with so many rows."""
    (folder / "rows.jsonl").write_text("".join(LINES[:count]), "utf-8")


def test_a_new_output_is_a_folder_of_versions(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """With a link to the last, a line for each run, and nothing to say about it."""
    for count, status in ((4, "built"), (4, "unchanged"), (8, "built")):
        rows(tmp_path, count)
        ran = pipeline("build", recipe, "--json", "--quiet")
        found = json.loads(ran.out)
        assert (ran.status, found["status"], found["figures"]["notes"]) == (0, status, []), ran.err
    out = tmp_path / "out"
    assert (out / "current").resolve().name == found["build_id"]
    assert len(versions.versions(out)) == 2
    assert len((out / history.HISTORY).read_text().splitlines()) == 3
    assert not (out / "manifest.json").exists()


def test_as_many_stay_as_the_default_says(recipe: Path) -> None:
    """Of a recipe; what a command and a call make is one build."""
    (config,) = builds_of(recipe)
    assert (config.run.keep, config.notes) == (BY_RECIPE, ()) == (7, ())
    assert Config.of("sft", ("rows.jsonl",), "qwen2-1.5b", Path("out")).run.keep == 0


def test_one_build_stays_one(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """A schedule goes on as it was, and every summary says how versions are kept."""
    out = tmp_path / "out"
    assert pipeline(*COMMAND, "--quiet").status == 0
    before = (out / "manifest.json").read_bytes()
    ran = pipeline("build", recipe)
    assert (ran.status, "already up to date" in ran.err) == (0, True), ran.err
    assert "out is one build and stays one" in ran.err
    rows(tmp_path, 8)
    ran = pipeline("build", recipe, "--json")
    (note,) = json.loads(ran.out)["figures"]["notes"]
    assert "keep = 0" in note
    assert note in ran.err
    assert (out / "manifest.json").read_bytes() != before
    assert not (out / "current").is_symlink()
    assert not (out / history.HISTORY).exists()
    recipe.write_text(f"{HEAD}keep = 0\n")
    assert "stays one" not in pipeline("build", recipe).err


@pytest.mark.parametrize("said", ["flag", "recipe", "set"])
def test_one_build_is_made_where_it_is_asked_for(
    pipeline: Run, tmp_path: Path, recipe: Path, said: str
) -> None:
    """By a flag, also where the recipe says otherwise; by the recipe; by ``--set``."""
    recipe.write_text(HEAD + {"flag": "keep = 3\n", "recipe": "keep = 0\n", "set": ""}[said])
    more = {"flag": ("--keep", 0), "recipe": (), "set": ("--set", "keep=0")}[said]
    ran = pipeline("build", recipe, *more)
    assert ran.status == 0, ran.err
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert "stays one" not in ran.err


def test_one_build_is_not_made_into_versions(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """Where versions are asked for by name, the output is refused as before, and stays."""
    assert pipeline(*COMMAND, "--quiet").status == 0
    ran = pipeline("build", recipe, "--keep", 7)
    assert (ran.status, "is a build, not a folder of versions" in ran.err) == (2, True), ran.err
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_a_folder_of_somebody_else_is_refused(pipeline: Run, tmp_path: Path, recipe: Path) -> None:
    """With or without a file of the name that ours has."""
    (tmp_path / "out").mkdir()
    for name in ("notes.txt", "manifest.json"):
        (tmp_path / "out" / name).write_text("{}")
        ran = pipeline("build", recipe)
        assert (ran.status, "has files in it" in ran.err) == (2, True), ran.err
        assert (tmp_path / "out" / name).read_text() == "{}"


def test_every_build_of_a_recipe_has_a_folder_of_its_own(
    pipeline: Run, tmp_path: Path, recipe: Path
) -> None:
    """Also where one of them was one build before, and one says so."""
    assert pipeline(*COMMAND[:-1], "b", "--quiet").status == 0
    builds = "".join(f'[[build]]\noutput = "{name}"\n' for name in "abc")
    recipe.write_text(HEAD.replace('output = "out"\n', "") + builds + "keep = 0\n")
    ran = pipeline("build", recipe, "--json", "--quiet")
    assert ran.status == 0, ran.err
    notes = [one["figures"]["notes"] for one in json.loads(ran.out)["builds"]]
    assert [len(one) for one in notes] == [0, 1, 0]
    assert (tmp_path / "a" / "current" / "manifest.json").is_file()
    assert len(versions.versions(tmp_path / "a")) == 1
    for name in "bc":
        assert (tmp_path / name / "manifest.json").is_file()


def test_a_call_makes_one_build(tmp_path: Path, cache_dir: Path) -> None:
    """With sources too, though these are read as a recipe's are."""
    rows(tmp_path, 4)
    source = [{"name": "math", "data": str(tmp_path / "rows.jsonl")}]
    made = {"model": "qwen2-1.5b", "output": tmp_path / "out", "cache_dir": cache_dir}
    pp.run("sft", source=source, **made)
    assert (tmp_path / "out" / "manifest.json").is_file()
