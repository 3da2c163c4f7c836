"""The gate itself: what the bare library lets through, what it may load, and whom it may ask."""

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import law_metrics
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from shipped_judge import ShippedJudge
from support import ROOT, SAMPLES, Make, Run, read_manifest, rows_to, run_python, started
from support import table as tables

from expectations import gate, gx_library, gx_runner, gx_suites, tallies
from expectations.contract import APART, EXAMPLE, PLANNED, RENDERED, Context, parameters
from expectations.invariants import applying
from pipeline.builder.gate import line
from pipeline.builds import publish
from pipeline.manifest.json_records import Sealed, one_line
from pipeline.tasks import kind_of
from pipeline.tasks import load as load_task
from stages import catalog, errors, findings
from stages.profile import TargetModel

pytestmark = pytest.mark.great_expectations

LENGTH = {
    "type": "expect_column_values_to_be_between",
    "kwargs": {"column": "n_tokens", "min_value": 1, "max_value": {"$PARAMETER": "max_length"}},
}


def suite(*expectations: Any, **given: Any) -> str:
    """A suite as a user writes it."""
    return json.dumps({"name": "mine", "expectations": list(expectations), **given})


def table(frame: pl.DataFrame, name: str = EXAMPLE, rows: int | None = None) -> gate.Table:
    """A table of one piece."""
    return gate.Table(name, len(frame) if rows is None else rows, lambda: iter([frame.to_arrow()]))


@pytest.fixture
def context(model: TargetModel) -> Context:
    """A build of SFT rows."""
    return Context(kind_of("sft"), "ragged", 64, model, PLANNED)


def places(table: str, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Rows by their number."""
    return [{"row": f"x:{row + 1}"} for row in rows]


def judged(
    frame: pl.DataFrame, text: str, context: Context, rows: int | None = None
) -> findings.Validation:
    """A frame of metrics by a user's suite."""
    loaded = gx_suites.load("mine.json", text)
    return gate.judge({EXAMPLE: table(frame, rows=rows)}, loaded, context, places)


GOOD = pl.DataFrame({"n_tokens": [3, 64, 7], "n_trained": [1, 2, 3]})


def test_what_does_not_load_whole_is_not_judged(context: Context) -> None:
    """Unknown types, severities, arguments, columns; nothing asked; a metric that raises."""
    for one in tables("unloadable_suites.toml")["suite"]:
        with pytest.raises(errors.GateError, match=one["why"]) as caught:
            judged(GOOD, one["text"], context)
        assert caught.value.exit_code == 4


def test_a_table_that_says_nothing_does_not_pass(context: Context) -> None:
    """No rows, other rows than were written, nulls, NaN, text: none of it reaches the library."""
    holes = pl.Series([1, None, 2], dtype=pl.Int64)
    for frame, rows, why in (
        (GOOD.clear(), None, "has no rows"),
        (GOOD.clear(), 3, "has 0 rows, but 3"),
        (GOOD, 4, "has 3 rows, but 4"),
        (GOOD.with_columns(n_tokens=pl.lit(None, pl.Int64)), None, "nulls in n_tokens"),
        (GOOD.with_columns(n_tokens=holes), None, "nulls in n_tokens"),
        (GOOD.with_columns(n_tokens=pl.lit(float("nan"))), None, "is double"),
        (GOOD.with_columns(n_tokens=pl.lit("<script>")), None, "is large_string"),
    ):
        with pytest.raises(errors.GateError, match=why):
            judged(frame, suite(LENGTH), context, rows)


def test_bad_rows_are_counted_and_named(context: Context) -> None:
    """A user's suite judges with a build's own bounds, and names rows by their ids."""
    found = judged(pl.DataFrame({"n_tokens": [3, 65, 0, 64]}), suite(LENGTH), context)
    (finding,) = found.expectations
    assert not found.passed
    assert finding.broken == 2
    assert [place["row"] for place in finding.rows] == ["x:2", "x:3"]
    assert finding.checks[0].kwargs["max_value"] == 64


def test_severities_decide(context: Context) -> None:
    """Only what is critical fails; the rest is told."""
    bad = pl.DataFrame({"n_tokens": [65]})
    for severity in findings.SEVERITIES:
        found = judged(bad, suite({**LENGTH, "severity": severity}), context)
        assert found.passed == (severity != "critical")
        assert found.failed[severity] == ("expect_column_values_to_be_between_1",)


def test_what_is_about_a_whole_column_is_judged_over_all_of_it(context: Context) -> None:
    """A user may ask for a mean, or for what is unique, of a table that comes in pieces."""
    frame = pl.DataFrame({"n_tokens": [1, 2, 3, 1]})
    pieces = gate.Table(EXAMPLE, 4, lambda: iter([frame[:2].to_arrow(), frame[2:].to_arrow()]))
    wanted = suite(
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "n_tokens"}},
        {
            "type": "expect_column_mean_to_be_between",
            "kwargs": {"column": "n_tokens", "min_value": 2, "max_value": 9},
        },
    )
    found = gate.judge({EXAMPLE: pieces}, gx_suites.load("a.json", wanted), context, places)
    unique, mean = found.expectations
    assert (unique.broken, unique.rows) == (2, ({"row": "x:1"}, {"row": "x:4"}))
    assert (mean.passed, mean.checks[0].observed) == (False, 1.75)


PLUGIN = """
def suite(gx):
    E = gx.expectations
    class {name}(E.ExpectColumnValuesToBeBetween):
        column: str = "n_tokens"
        min_value: int = {low}
    return gx.ExpectationSuite(name="plugin", expectations=[{name}()])
"""


def test_a_suite_in_python_can_be_loaded_again(context: Context) -> None:
    """A notebook runs two builds, and edits the file in between; two files cannot share a class."""
    for low, broken in ((5, 1), (5, 1), (1, 0)):
        loaded = gx_suites.load("again.py", PLUGIN.format(name="ExpectEditedRows", low=low))
        (finding,) = gate.judge({EXAMPLE: table(GOOD)}, loaded, context, places).expectations
        assert (finding.broken, finding.checks[0].kwargs["min_value"]) == (broken, low)
    with pytest.raises(errors.GateError, match=r"other\.py redefines expect_edited_rows"):
        gx_suites.load("other.py", PLUGIN.format(name="ExpectEditedRows", low=5))


def test_a_suite_cannot_redefine_an_expectation(context: Context) -> None:
    """A class that takes a core expectation's name would be the judge of every later suite."""
    text = PLUGIN.format(name="ExpectColumnPairValuesToBeEqual", low=0)
    before = gx_library.registry()["expect_column_pair_values_to_be_equal"]
    with pytest.raises(errors.GateError, match="redefines expect_column_pair_values_to_be_equal"):
        gx_suites.load("plugin.py", text)
    assert gx_library.registry()["expect_column_pair_values_to_be_equal"] is before
    with pytest.raises(errors.GateError, match="does not load: ZeroDivisionError"):
        gx_suites.load("plugin.py", "1 / 0")


def test_rows_that_decide_stand_for_all(context: Context) -> None:
    """The verdict is about all rows, with their numbers, where the judge is shown some of them; as
    many broken ones as are named are counted, and of more it is said that there are more."""
    (law,) = [law for law in applying(context, EXAMPLE) if law.name == "something_trained"]
    checks = law.checks_for(context)
    declared = [d for s in gx_suites.shipped(context) for d in s.expectations if d.law == law.name]
    wanted = gx_suites.Suite("shipped.examples", EXAMPLE, tuple(declared))

    def found(values: Any) -> findings.Finding:
        kept = tallies.tally({"n_trained": np.array(values)}, checks)
        assert len(kept.at) <= 2 * findings.NAMED
        shown = pa.table(dict(kept.shown))
        told = gate.Table(EXAMPLE, kept.rows, lambda: iter([shown]), kept.at)
        (finding,) = gate.judge({EXAMPLE: told}, [wanted], context, places).expectations
        return finding

    some = found([7] * 50 + [1, 0, 0, 2] + [5] * 50)
    assert (some.passed, some.checked, some.broken) == (False, 104, 2)
    assert some.rows == ({"row": "x:52"}, {"row": "x:53"})
    assert (some.checks[0].broken, some.seen) == (2, {"n_trained": 0})
    assert "something_trained: 2 of 104 examples" in line(replace(some, rows=()))
    many = found([9] * 30 + [0] * 30)
    assert (many.broken, len(many.rows), many.rows[0]) == (10, 10, {"row": "x:31"})
    assert "something_trained: 10 or more of 60 examples" in line(replace(many, rows=()))
    assert found([9, *range(1, 40)]).passed


TASK_OF = {kind_of(name): name for name in catalog.names("pipeline.tasks")}


def contexts(model: TargetModel, step_model: TargetModel) -> Iterator[Context]:
    """Every task in every layout."""
    for name in catalog.names("pipeline.tasks"):
        task = load_task(name)
        for layout in task.layouts:
            bound = step_model if task.with_steps else model
            yield Context(kind_of(name), layout, 64, bound, PLANNED, (RENDERED, APART))


@pytest.mark.slow
def test_every_law_is_judged_on_any_table(model: TargetModel, step_model: TargetModel) -> None:
    """On random metrics the library finds the rows that break a law by its checks, for each law."""
    draw = np.random.default_rng(0)
    for context in contexts(model, step_model):
        bounds = sorted({*parameters(context).values(), -1, 0, 1, 2})
        for shipped in gx_suites.shipped(context):
            names = gx_suites.columns_of(shipped.expectations)
            for share in (0.0, 0.3):
                rows = 64
                data = {n: np.where(draw.random(rows) < share, draw.choice(bounds, rows), 1)
                        for n in names}  # fmt: skip
                frame = pl.DataFrame(data, schema=dict.fromkeys(names, pl.Int64))
                found = gate.judge({shipped.table: table(frame, shipped.table)}, [shipped],
                                   context, places)  # fmt: skip
                assert [f.name for f in found.expectations] == [
                    law.name for law in applying(context, shipped.table)
                ]
                for law, one in zip(
                    applying(context, shipped.table), found.expectations, strict=True
                ):
                    bad = np.flatnonzero(law_metrics.broken(law, frame, context))
                    assert one.passed == (not len(bad)), law.name
                    assert min(one.broken, findings.NAMED) == min(len(bad), findings.NAMED)


def test_shipped_suites_use_no_tolerance(model: TargetModel, step_model: TargetModel) -> None:
    """Every row counts; and what is exported as JSON is what is judged, word for word."""
    for context in contexts(model, step_model):
        made = [shipped.described() for shipped in gx_suites.shipped(context)]
        assert {entry["meta"]["table"] for entry in made} >= {EXAMPLE, "shards", "dataset"}
        assert all("mostly" not in e["kwargs"] for entry in made for e in entry["expectations"])
        path = ROOT / "docs" / "suites" / f"{TASK_OF[context.kind]}-{context.layout}.json"
        assert json.loads(path.read_text("utf-8")) == made
        renamed = [entry | {"name": "copy." + entry["name"]} for entry in made]
        loaded = gx_suites.load(path.name, json.dumps(renamed))
        assert [s.expectations for s in loaded] == [
            s.expectations for s in gx_suites.shipped(context)
        ]


TRAP = """
import socket, sys
def trapped(*a, **k): raise SystemExit(f"network: {a}")
socket.socket.connect = trapped
socket.getaddrinfo = trapped
from posttrain_pipeline.commands import main
sys.argv = ["pipeline", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_the_gate_asks_nobody(cache_home: Path, tmp_path: Path) -> None:
    """A build under a trap for every connection and every look-up of a name."""
    data = SAMPLES / "rm" / "pairs.jsonl"
    command = [sys.executable, "-c", TRAP, "run", "rm", "--model", "qwen2-1.5b", str(data)]
    env = {"PATH": "/usr/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(cache_home)}
    started(*command, "--max-reject", "1", "-o", "out", folder=tmp_path, env=env).ended()
    assert read_manifest(tmp_path / "out")["validation"]["passed"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_worker_loads_no_judge() -> None:
    """Nor do help and plan, which are tested with all that they import."""
    body = "import sys, pipeline.shards.part, pipeline.shards.gather, pipeline.processes"
    check = "\nassert not {'great_expectations', 'datasets'} & {*sys.modules}"
    run_python(body + check, ROOT).ended()


def test_one_function_permits() -> None:
    """Only ``write_manifest`` makes a build.

    An export's manifest is a copy of its build's, in another folder, and so is a publication's."""
    writing = set()
    for package in ("stages", "expectations", "pipeline", "posttrain_pipeline"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            tree = ast.parse(text if "MANIFEST" in text else "")
            calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
            if any("write" in ast.unparse(c.func) and "MANIFEST" in ast.unparse(c) for c in calls):
                writing.add(path.relative_to(ROOT).as_posix())
    copied = {"pipeline/builder/exporting.py", "pipeline/publish/publication.py"}
    assert writing == {"pipeline/builds/publish.py", *copied}


def test_no_manifest_without_the_verdict(context: Context, tmp_path: Path) -> None:
    """A verdict that failed, judged nothing, or is not the one written down permits nothing."""
    good = judged(GOOD, suite(LENGTH), context)
    bad = judged(pl.DataFrame({"n_tokens": [65]}), suite(LENGTH), context)
    none = replace(good, expectations=())
    for written, given in ((bad, bad), (good, bad), (bad, good), (none, none)):
        (tmp_path / "validation.json").write_text(one_line(written))
        with pytest.raises(errors.GateError):
            publish.write_manifest(tmp_path, Sealed(), given)
        assert not (tmp_path / "manifest.json").exists()
    (tmp_path / "validation.json").write_text(one_line(good))
    publish.write_manifest(tmp_path, Sealed(), good)
    assert (tmp_path / "manifest.json").exists()


def test_expectations_of_the_command_line(pipeline: Run, tmp_path: Path) -> None:
    """A user's suite refuses a build, tells of what is no more than a warning, or stops it."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    command = ("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out", "--expectations")
    short = {**LENGTH, "kwargs": {"column": "n_tokens", "max_value": 40}, "meta": {"name": "short"}}
    (tmp_path / "mine.json").write_text(suite(short))
    ran = pipeline(*command, "mine.json")
    assert ran.status == 3, ran.err
    assert "short: " in ran.err
    assert "word_problems.jsonl:" in ran.err
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine.json").write_text(suite({**short, "severity": "warning"}))
    ran = pipeline(*command, "mine.json").ended()
    assert "warning   short" in ran.err
    (tmp_path / "mine.json").write_text(suite({**short, "type": "expect_less"}))
    ran = pipeline(*command, "mine.json")
    assert ran.status == 4, ran.err
    assert "unknown type" in ran.err


def test_metrics_are_numbers_whatever_the_data_says(make: Make, tmp_path: Path) -> None:
    """No text of the data, and no name of its file, is in what the gate looked at or wrote."""
    row = {"question": "<b>", "answer": "<script>"}
    folder = make("sft", rows_to(tmp_path / "<script>alert(1)<script>.jsonl", row))
    assert "<" not in (folder / "validation.json").read_text("utf-8")


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
@pytest.mark.parametrize("layout", ["packed", "padded", "ragged"])
def test_the_judge_of_other_tests_judges_as_the_library(
    task: str, layout: str, step_model: TargetModel
) -> None:
    """Every shipped expectation, on metrics that keep and break them."""
    context = Context(kind_of(task), layout, 3, step_model, PLANNED)
    draw = np.random.default_rng(len(task + layout))
    for wanted in gx_suites.shipped(context):
        names = gx_suites.columns_of(wanted.expectations)
        for least in (-1, 0, 1):
            frame = pa.table({name: draw.integers(least, 3, 40) for name in names})
            given = (wanted, parameters(context), frame)
            assert ShippedJudge().run(*given) == gx_runner.Runner().run(*given)
