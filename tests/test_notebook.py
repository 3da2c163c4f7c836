"""What a notebook shows: builds and plans as HTML, phases in a cell; and that of the docs runs."""

import html
import json
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support import ROOT, SAMPLE_OF, SAMPLES, raised, started, table, write_rows

import posttrain_pipeline as pp
from pipeline.messages import progress, screen
from pipeline.report.drawing import KINDS, Shards


def text_of(fragment: str) -> str:
    """What is read of HTML, without its style."""
    bare = re.sub(r"<style>.*?</style>", "", fragment, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", bare)).replace("\u202f", "")


def _cards(fragment: str) -> dict[str, int]:
    found = re.findall(r'class="card"><span>([^<]*)</span><b>([^<]*)</b>', fragment)
    return {name: int(value.replace("\u202f", "")) for name, value in found}


def _drawn(fragment: str) -> list[str]:
    """The text of each sequence that is drawn."""
    strips = re.findall(r'<div class="tokens">(.*?)</div>', fragment, flags=re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", one)).replace("↵\n", "\n") for one in strips]


@pytest.mark.parametrize("task", SAMPLE_OF)
def test_a_plan_and_a_build_show_their_counts_their_losses_and_a_row(task, tmp_path, cache_dir):
    """The numbers of the manifest, each code with its rows, and the first row as it is stored."""
    given: dict[str, Any] = {"model": "qwen2-1.5b", "data": SAMPLE_OF[task], "cache_dir": cache_dir}
    plan = pp.plan(task, **given)
    build = pp.run(task, output=tmp_path / "out", **given)
    planned, built = plan._repr_html_(), build._repr_html_()
    counts = build.manifest.rows
    assert _cards(planned)["rows"] == plan.rows
    assert _cards(built)["rows used"] == counts.used
    assert _cards(built)["refused"] == counts.rejected
    for shown in (planned, built):
        assert "<script" not in shown
        for code, rows in counts.rejected_by_code.items():
            assert f"{code} {rows} row" in " ".join(text_of(shown).split())
    stored = Shards(build)
    strips = stored.strips(stored.row("train", 0), most=2)
    wanted = ["".join(piece.text for piece in one.pieces) for one in strips]
    assert _drawn(built) == wanted
    assert set(_drawn(planned)) <= set(wanted)
    kinds = {piece.kind for one in strips for piece in one.pieces}
    assert all(f'<span class="{kind}">' in built and KINDS[kind] in built for kind in kinds)


def test_a_text_of_the_data_is_never_markup(tmp_path, cache_dir):
    """Neither in the tokens nor in the reason of a refusal."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>&lt;"
    rows = [{"prompt": f"{evil} {n}", "completion": evil if n else ""} for n in range(9)]
    data = write_rows(tmp_path / "<b>.jsonl", rows)
    given: dict[str, Any] = {"model": "qwen2-1.5b", "data": data, "cache_dir": cache_dir}
    plan = pp.plan("sft", **given)
    build = pp.run("sft", output=tmp_path / "out", max_reject=0.5, **given)
    for shown in (plan._repr_html_(), build._repr_html_()):
        assert not re.search(r"<(script|img|b\.)", shown)
        assert evil in "".join(_drawn(shown))


@pytest.fixture
def outputs(monkeypatch) -> list[list[str]]:
    """Every text that each output of a cell has had, in a process that runs as a kernel."""
    shown: list[list[str]] = []

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert (raw, display_id) == (True, True)
        shown.append(texts := [content["text/plain"]])
        return SimpleNamespace(update=lambda more, raw: texts.append(more["text/plain"]))

    fake = ModuleType("IPython.display")
    vars(fake)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    return shown


def test_a_kernel_shows_the_phases_in_one_output(outputs, tmp_path, cache_dir):
    """Its last text has every phase in order; a function that is given takes its place."""
    given: dict[str, Any] = {"model": "qwen2-1.5b", "cache_dir": cache_dir}
    pp.run("prm", data=SAMPLE_OF["prm"], output=tmp_path / "out", **given)
    (output,) = outputs
    phases = [line.split()[0] for line in output[-1].splitlines() if line[0] != " "]
    assert phases == ["start", "encode", "plan", "write", "check", "report", "publish"]
    pp.run("prm", data=SAMPLE_OF["prm"], output=tmp_path / "2", progress=lambda *_: None, **given)
    assert len(outputs) == 1


def test_a_long_phase_is_drawn_a_few_times(outputs):
    """Not at each of its pieces, and once more when it ends."""
    follower: progress.Follower = screen.Cell()
    for done in range(10_001):
        follower("encode", done, 10_000)
    (output,) = outputs
    assert 2 <= len(output) < 100


@pytest.mark.slow
def test_a_script_builds_without_asking_whether_it_is_main(tmp_path, cache_dir):
    """A process that starts anew does not run it a second time."""
    script = tmp_path / "train.py"
    code = table("scripts.toml")["build_without_main"].replace("DATA", str(SAMPLE_OF["prm"]))
    script.write_text(code.replace("CACHE", str(cache_dir)))
    ran = started(sys.executable, script, folder=tmp_path).ended()
    assert (ran.out.split(), ran.err) == (["began", "14"], "")


def test_the_notebook_of_the_docs_runs(tmp_path, cache_home, monkeypatch):
    """Cell by cell; what a cell ends in can show itself. It is kept without outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    (tmp_path / "sample_data").symlink_to(SAMPLES)
    cells = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in (one for one in cells if one["cell_type"] == "code"):
        assert not cell["outputs"]
        exec(compile("".join(cell["source"]), "tutorial.ipynb", "exec"), names)


# ``import posttrain_pipeline``: the commands as functions, with typed results.

PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"


def test_run_builds_what_the_command_builds(pipeline, tmp_path, cache_dir):
    """The same options give the same manifest, and the result is typed."""
    flags = ("--layout", "ragged", "--map", "question=question", "--dedup", "--stop", "a")
    pipeline("run", "sft", PROBLEMS, "--model", "qwen2-1.5b", "-o", "one", *flags).ended()
    told: list[tuple[str, int, int]] = []
    given = {"layout": "ragged", "map": {"question": "question"}, "dedup": True, "stop": ["a"]}
    usual = {"model": "qwen2-1.5b", "data": [PROBLEMS], "system": None, "cache_dir": cache_dir}
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


def test_plan_says_what_the_command_says(pipeline, tmp_path, cache_dir):
    """The page and the JSON of ``pipeline plan``; its figures by name."""
    plan = pp.plan("sft", model="qwen2-1.5b", data=str(PROBLEMS), output="o", cache_dir=cache_dir)
    asked = ("plan", PROBLEMS, "--task", "sft", "--model", "qwen2-1.5b", "-o", "o")
    assert pipeline(*asked).out == f"{plan}\n"
    said = pipeline(*asked, "--json").told
    assert json.loads(json.dumps(plan.described())) == said
    assert (plan.rows, plan.sampled) == (said["rows"], said["rejects"]["sampled"])
    assert (plan.layout, plan.would_stop, plan.refused) == ("packed", False, {})
    assert list(plan.formats) == ["word_problems.jsonl"]


@pytest.mark.parametrize(("given", "kind", "says"), table("python_errors.jsonl"))
def test_errors_are_those_of_the_command(tmp_path, cache_dir, given, kind, says):
    """What the command prints is raised, under one root."""
    usual: dict[str, Any] = {"task": "sft", "model": "qwen2-1.5b", "data": PROBLEMS}
    asked = {**usual, "output": tmp_path / "out", "cache_dir": cache_dir, **given}
    assert isinstance(raised(getattr(pp, kind), pp.run, **asked, says=says), pp.PipelineError)
    assert not (tmp_path / "out").exists()


def test_sources_are_tables(tmp_path, cache_dir):
    """As in a recipe; they take the place of the data."""
    source = [
        {"name": "math", "data": PROBLEMS, "system": "Think."},
        {"name": "talk", "data": [SAMPLES / "sft" / "chat.jsonl"], "train_on": "last"},
    ]
    given = {"model": "qwen2-1.5b", "output": tmp_path / "out", "cache_dir": cache_dir}
    plan = pp.plan("sft", source=source, max_reject=0.5, **given)
    assert list(plan.formats) == ["word_problems.jsonl", "chat.jsonl"]


def test_every_name_is_there_and_none_is_loaded_before_it_is_asked_for():
    """An import alone costs nothing; ``dir`` lists what there is."""
    assert all(getattr(pp, name) is not None for name in pp.__all__)
    assert set(pp.__all__) <= set(dir(pp))
    missing = "build_it"
    raised(AttributeError, getattr, pp, missing, says=missing)
    heavy = "{'pyarrow', 'click', 'pipeline', 'stages'}"
    code = f"import sys, posttrain_pipeline; print({heavy} & set(sys.modules))"
    assert started(sys.executable, "-c", code).ended().out == "set()\n"
