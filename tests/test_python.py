"""``import posttrain_pipeline``: the commands as functions, with typed results."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Run, started, table

import posttrain_pipeline as pp

DATA = SAMPLES / "sft" / "word_problems.jsonl"


def test_run_builds_what_the_command_builds(pipeline: Run, tmp_path: Path, cache_dir: Path) -> None:
    """The same options give the same manifest, and the result is typed."""
    flags = ("--layout", "ragged", "--map", "question=question", "--dedup", "--stop", "a")
    pipeline("run", "sft", DATA, "--model", "qwen2-1.5b", "-o", "one", *flags).ended()
    told: list[tuple[str, int, int]] = []
    given = {"layout": "ragged", "map": {"question": "question"}, "dedup": True, "stop": ["a"]}
    usual = {"model": "qwen2-1.5b", "data": [DATA], "system": None, "cache_dir": cache_dir}
    build = pp.run(
        "sft", output=tmp_path / "two", progress=lambda *step: told.append(step), **usual, **given
    )
    assert isinstance(build, pp.Build)
    one, two = (tmp_path / name / "manifest.json" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    rows = build.manifest.rows
    assert rows.used == json.loads(one.read_bytes())["rows"]["used"] > 0
    phases = ["start", "encode", "plan", "write", "check", "report", "publish"]
    assert list(dict.fromkeys(step[0] for step in told)) == phases
    assert all((phase, total, total) in told for phase, _, total in told)
    again = pp.open(str(tmp_path / "two"))
    assert again.manifest == build.manifest


def test_plan_says_what_the_command_says(pipeline: Run, tmp_path: Path, cache_dir: Path) -> None:
    """The page and the JSON of ``pipeline plan``; its figures by name."""
    plan = pp.plan("sft", model="qwen2-1.5b", data=str(DATA), output="o", cache_dir=cache_dir)
    asked = ("plan", DATA, "--task", "sft", "--model", "qwen2-1.5b", "-o", "o")
    assert pipeline(*asked).out == f"{plan}\n"
    said = pipeline(*asked, "--json").told
    assert json.loads(json.dumps(plan.described())) == said
    assert (plan.rows, plan.sampled) == (said["rows"], said["rejects"]["sampled"])
    assert (plan.layout, plan.would_stop, plan.refused) == ("packed", False, {})
    assert list(plan.formats) == ["word_problems.jsonl"]


@pytest.mark.parametrize(("given", "kind", "says"), table("python_errors.jsonl"))
def test_errors_are_those_of_the_command(
    tmp_path: Path, cache_dir: Path, given: dict[str, object], kind: str, says: str
) -> None:
    """What the command prints is raised, under one root."""
    usual: dict[str, Any] = {"task": "sft", "model": "qwen2-1.5b", "data": DATA}
    asked = {**usual, "output": tmp_path / "out", "cache_dir": cache_dir, **given}
    with pytest.raises(getattr(pp, kind), match=says) as caught:
        pp.run(**asked)
    assert isinstance(caught.value, pp.PipelineError)
    assert not (tmp_path / "out").exists()


def test_sources_are_tables(tmp_path: Path, cache_dir: Path) -> None:
    """As in a recipe; they take the place of the data."""
    source = [
        {"name": "math", "data": DATA, "system": "Think."},
        {"name": "talk", "data": [SAMPLES / "sft" / "chat.jsonl"], "train_on": "last"},
    ]
    given = {"model": "qwen2-1.5b", "output": tmp_path / "out", "cache_dir": cache_dir}
    plan = pp.plan("sft", source=source, max_reject=0.5, **given)
    assert list(plan.formats) == ["word_problems.jsonl", "chat.jsonl"]


def test_every_name_is_there_and_none_is_loaded_before_it_is_asked_for() -> None:
    """An import alone costs nothing; ``dir`` lists what there is."""
    assert all(getattr(pp, name) is not None for name in pp.__all__)
    assert set(pp.__all__) <= set(dir(pp))
    missing = "build_it"
    with pytest.raises(AttributeError, match=missing):
        getattr(pp, missing)
    heavy = "{'pyarrow', 'click', 'pipeline', 'stages'}"
    code = f"import sys, posttrain_pipeline; print({heavy} & set(sys.modules))"
    assert started(sys.executable, "-c", code).ended().out == "set()\n"
