"""What a build may take the place of: of another kind, much smaller, or with others' files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Ran, read_manifest
from test_publish import fingerprint

from pipeline.builds import leftovers, limits
from pipeline.manifest.drifts import DRIFTS
from stages.errors import DataError, UsageError

Run = Callable[..., Ran]
Make = Callable[..., Path]
GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b")


def rows(path: Path, count: int, words: int = 1) -> Path:
    """Questions with answers of so many words."""
    lines = [
        json.dumps({"question": f"Count {n}.", "answer": " ".join([f"n{n}"] * words)})
        for n in range(count)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_another_task_or_model_asks(pipeline: Run, tmp_path: Path) -> None:
    """Before any row is encoded; the old build stays until --replace."""
    sft = ("run", "sft", GOOD, "-o", "out")
    pairs = ("run", "rm", SAMPLES / "rm" / "pairs.jsonl", "-o", "out", "--max-reject", "1")
    assert pipeline(*sft, *MODEL).status == 0
    before = fingerprint(tmp_path / "out")
    for command in ((*pairs, *MODEL), (*sft, "--model", "qwen2.5-7b-instruct")):
        ran = pipeline(*command)
        assert ran.status == 2, ran.err
        assert "out is a build of sft for qwen2-1.5b; this one would be" in ran.err
        assert "--replace" in ran.err
        assert fingerprint(tmp_path / "out") == before
    assert pipeline(*pairs, *MODEL, "--replace").status == 0
    assert read_manifest(tmp_path / "out")["task"] == "rm"


@pytest.mark.slow
def test_a_build_that_lost_most_rows_asks(pipeline: Run, tmp_path: Path) -> None:
    """More than half of them, and more than a few; what it would have been is kept as refused."""
    data = tmp_path / "rows.jsonl"
    command = ("run", "sft", data, *MODEL, "-o", "out")
    rows(data, 300)
    assert pipeline(*command).status == 0
    before = fingerprint(tmp_path / "out")
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
    assert fingerprint(tmp_path / "out") == before
    assert pipeline(*command, "--drift", "rows=0.54").status == 0
    rows(data, 60)
    assert pipeline(*command).status == 0  # 80 rows fewer: a small build is somebody's trial


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
    assert pipeline("build", "r.toml").status == 0
    before = {one["name"]: one["share"] for one in read_manifest(tmp_path / "out")["sources"]}
    (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")
    (tmp_path / "r.toml").write_text(head + sources.replace("b.jsonl", "c.jsonl"))
    assert pipeline("build", "r.toml").status == 0
    rows(tmp_path / "c.jsonl", 80, words=3)
    ran = pipeline("build", "r.toml", "--json")
    over = json.loads(ran.out)["figures"]["drift"]
    assert set(over) == {"source_share of math", "source_share of talk"}
    assert over["source_share of math"]["before"] == before["math"]
    assert pipeline("build", "r.toml", "--drift", "source_share=0.2").status == 0


def test_a_limit_that_is_none_is_refused(pipeline: Run) -> None:
    """Before anything is read. Every limit that there is can be given."""
    assert set(DRIFTS) == {limits.ROWS, limits.TRAINED, limits.SHARE}
    for given_, says in (("row=1", "is not a limit"), ("rows=x", "NUMBER=SHARE")):
        ran = pipeline("run", "sft", GOOD, *MODEL, "--drift", given_)
        assert ran.status == 2
        assert says in ran.err


def _like(build: Any, used: int, trained: int) -> Any:
    manifest = build.manifest
    from dataclasses import replace

    rows_ = replace(manifest.rows, used=used)
    tokens = replace(manifest.tokens, trained=trained)
    return replace(build, manifest=replace(manifest, rows=rows_, tokens=tokens))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Any:
    """A small build."""
    from pipeline.builder.build import build
    from pipeline.options.config import Config

    folder = tmp_path_factory.mktemp("built") / "out"
    options = {"cache_dir": cache_dir, "workers": 1}
    config = Config.of("sft", (str(GOOD),), "qwen2-1.5b", folder, **options)
    return build(config, lambda *_: None).build


@given(
    st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 9000), st.integers(0, 9000),
    st.floats(0, 2),
)  # fmt: skip
def test_limits_are_what_they_say(
    built: Any, old: int, new: int, before: int, after: int, limit: float
) -> None:
    """A number is refused when it changed by more than the limit, relative to the build before."""
    pair = (_like(built, old, before), _like(built, new, after))
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
    assert pipeline(*command).status == 0
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
    checked = pipeline("check", "out")
    assert checked.status == 0, checked.err
    assert ".DS_Store was left by another program" in checked.err
    rows(data, 21)
    ran = pipeline(*command)
    assert ran.status == 0, ran.err
    assert f"by other programs, removed with the build before: {', '.join(left)}" in ran.err
    assert not any((out / name).exists() for name in left)


def test_files_of_the_user_s_are_named(pipeline: Run, tmp_path: Path) -> None:
    """A build with notes in it is not replaced."""
    assert pipeline("run", "sft", GOOD, *MODEL, "-o", "out").status == 0
    (tmp_path / "out" / "train" / "notes.md").write_text("mine")
    ran = pipeline("run", "sft", GOOD, *MODEL, "-o", "out", "--layout", "ragged")
    assert ran.status == 2
    assert "files that are not of the build: train/notes.md" in ran.err
    shutil.rmtree(tmp_path / "out" / "tokenizer")
    (tmp_path / "out" / "train" / "notes.md").unlink()
    assert pipeline("run", "sft", GOOD, *MODEL, "-o", "out").status == 0


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
    assert leftovers.is_one(name) is is_one


def test_kinds_are_compared_before_work(built: Any) -> None:
    """The same task and model pass."""
    limits.require_same_kind(built.manifest, "sft", "qwen2-1.5b", "out")
    with pytest.raises(UsageError, match="would be rm"):
        limits.require_same_kind(built.manifest, "rm", "qwen2-1.5b", "out")
