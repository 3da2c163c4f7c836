"""What a build may take the place of, and where it is one of several versions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from conftest import NAME
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Make, Run, write_rows

from pipeline.builds import build, limits
from pipeline.manifest import counts, dataset_files
from pipeline.options.config import Config
from pipeline.options.paths import BY_RECIPE
from pipeline.options.recipe import builds_of
from posttrain_pipeline.api import config_of

GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b")


def rows(path: Path, count: int, words: int = 1) -> Path:
    """Questions with answers of so many words."""
    return write_rows(
        path,
        ({"question": f"Count {n}.", "answer": " ".join([f"n{n}"] * words)} for n in range(count)),
    )


def test_a_limit_that_is_none_is_refused(pipeline: Run) -> None:
    """Before anything is read. Every limit that there is can be given."""
    assert set(counts.DRIFTS) == {limits.ROWS, limits.TRAINED, limits.SHARE}
    for given_, says in (("row=1", "is not a limit"), ("rows=x", "NUMBER=SHARE")):
        pipeline("run", "sft", GOOD, *MODEL, "--drift", given_).refused(2, says)


@pytest.fixture(scope="module")
def small(built: Make) -> build.Build:
    """A small build."""
    return build.Build.open(built("sft", GOOD))


def _like(build: Any, used: int, trained: int) -> Any:
    manifest = build.manifest
    rows_ = replace(manifest.rows, used=used)
    tokens = replace(manifest.tokens, trained=trained)
    return replace(build, manifest=replace(manifest, rows=rows_, tokens=tokens))


@given(
    st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 9000), st.integers(0, 9000),
    st.floats(0, 2),
)  # fmt: skip
def test_limits_are_what_they_say(
    small: build.Build, old: int, new: int, before: int, after: int, limit: float
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


def test_what_other_programs_leave_blocks_no_build(
    pipeline: Run, make: Make, tmp_path: Path
) -> None:
    """A cache of datasets and what a file browser writes: named, and gone with the build."""
    data = rows(tmp_path / "rows.jsonl", 20)
    command = ("run", "sft", data, *MODEL, "-o", "out", "--layout", "ragged", "--max-reject", "1")
    out = make("sft", data, layout="ragged")
    loaded = datasets.load_from_disk(str(out))["train"]
    loaded.map(lambda row: {"n": len(row["input_ids"])})
    (out / ".DS_Store").write_text("")
    (cache,) = [path.name for path in (out / "train").glob("cache-*.arrow")]
    left = [".DS_Store", f"train/{cache}"]
    again = pipeline(*command, "--json").ended()
    assert again.told["status"] == "unchanged"
    assert again.told["figures"]["left_by_other_programs"] == left
    assert f"by other programs, in it, and not part of it: {', '.join(left)}" in again.err
    checked = pipeline("check", "out").ended()
    assert ".DS_Store was left by another program" in checked.err
    rows(data, 21)
    ran = pipeline(*command).ended()
    assert f"by other programs, removed with the build before: {', '.join(left)}" in ran.err
    assert not any((out / name).exists() for name in left)


def test_which_files_are_nobody_s() -> None:
    """By their names; anything else is somebody's."""
    nobodys = """train/cache-1f2e.arrow train/cache-1f_00000_of_00002.arrow train/tmpab12_x9z a/._b
        .DS_Store report.html~ .manifest.json.swp x/.ipynb_checkpoints/a.ipynb .nfs000a""".split()
    mine = "notes.txt train/data-1.arrow tmp/thesis.tex cache/x.arrow manifest.json tmpfile.txt"
    assert [name for name in nobodys + mine.split() if dataset_files.is_one(name)] == nobodys


LINES = GOOD.read_text("utf-8").splitlines(keepends=True)
HEAD = 'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\noutput = "out"\n'


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


def test_as_many_stay_as_the_default_says(recipe: Path) -> None:
    """Of a recipe; what a command and a call make is one build, as what a recipe asks for: by a
    flag, also where the recipe says otherwise; by the recipe; by ``--set``."""
    (config,) = builds_of(recipe)
    assert (config.run.keep, config.notes) == (BY_RECIPE, ()) == (7, ())
    assert Config.of("sft", ("rows.jsonl",), "qwen2-1.5b", Path("out")).run.keep == 0
    source = {"source": [{"name": "math", "data": "rows.jsonl"}], "model": NAME}
    assert config_of("sft", None, source, "run").run.keep == 0
    (by_set,) = builds_of(recipe, ["keep=0"])
    recipe.write_text(f"{HEAD}keep = 0\n")
    (by_recipe,) = builds_of(recipe)
    recipe.write_text(f"{HEAD}keep = 3\n")
    (by_flag,) = builds_of(recipe, flags={"keep": 0})
    assert [one.run.keep for one in (by_set, by_recipe, by_flag)] == [0, 0, 0]
