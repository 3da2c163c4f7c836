"""The gate itself: what the bare library lets through, what it may load, and whom it may ask.

And the part of the library that judges shipped suites, its pages, and invariants of other packages.
"""

import ast
import json
import re
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
from conftest import NAME
from support import ROOT, SAMPLES, install_examples, read_manifest, rows_to, run_python, started
from support import table as tables

from expectations import contract, gate, gx_library, gx_runner, gx_suites, invariants, tallies
from expectations.contract import EXAMPLE, PLANNED, Context, Invariant, Metrics, Subject, none
from expectations.stored_rows import StoredRows
from pipeline.builder.gate import line
from pipeline.builds import publish
from pipeline.inputs import declared
from pipeline.manifest.json_records import Sealed, one_line
from pipeline.tasks import kind_of
from pipeline.tasks import load as load_task
from stages import catalog, errors, findings
from stages.errors import ExpectationError, GateError, UsageError
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
def context(model) -> Context:
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


def test_what_does_not_load_whole_is_not_judged(context):
    """Unknown types, severities, arguments, columns; nothing asked; a metric that raises."""
    for one in tables("unloadable_suites.toml")["suite"]:
        with pytest.raises(errors.GateError, match=one["why"]) as caught:
            judged(GOOD, one["text"], context)
        assert caught.value.exit_code == 4


def test_a_table_that_says_nothing_does_not_pass(context):
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


def test_bad_rows_are_counted_and_named(context):
    """A user's suite judges with a build's own bounds, and names rows by their ids."""
    found = judged(pl.DataFrame({"n_tokens": [3, 65, 0, 64]}), suite(LENGTH), context)
    (finding,) = found.expectations
    assert not found.passed
    assert finding.broken == 2
    assert [place["row"] for place in finding.rows] == ["x:2", "x:3"]
    assert finding.checks[0].kwargs["max_value"] == 64


def test_severities_decide(context):
    """Only what is critical fails; the rest is told."""
    bad = pl.DataFrame({"n_tokens": [65]})
    for severity in findings.SEVERITIES:
        found = judged(bad, suite({**LENGTH, "severity": severity}), context)
        assert found.passed == (severity != "critical")
        assert found.failed[severity] == ("expect_column_values_to_be_between_1",)


def test_what_is_about_a_whole_column_is_judged_over_all_of_it(context):
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


PLUGIN: str = tables("scripts.toml")["suite_in_python"]


def test_a_suite_in_python_can_be_loaded_again(context):
    """A notebook runs two builds, and edits the file in between; two files cannot share a class."""
    for low, broken in ((5, 1), (5, 1), (1, 0)):
        loaded = gx_suites.load("again.py", PLUGIN.format(name="ExpectEditedRows", low=low))
        (finding,) = gate.judge({EXAMPLE: table(GOOD)}, loaded, context, places).expectations
        assert (finding.broken, finding.checks[0].kwargs["min_value"]) == (broken, low)
    with pytest.raises(errors.GateError, match=r"other\.py redefines expect_edited_rows"):
        gx_suites.load("other.py", PLUGIN.format(name="ExpectEditedRows", low=5))


def test_a_suite_cannot_redefine_an_expectation(context):
    """A class that takes a core expectation's name would be the judge of every later suite."""
    text = PLUGIN.format(name="ExpectColumnPairValuesToBeEqual", low=0)
    before = gx_library.registry()["expect_column_pair_values_to_be_equal"]
    with pytest.raises(errors.GateError, match="redefines expect_column_pair_values_to_be_equal"):
        gx_suites.load("plugin.py", text)
    assert gx_library.registry()["expect_column_pair_values_to_be_equal"] is before
    with pytest.raises(errors.GateError, match="does not load: ZeroDivisionError"):
        gx_suites.load("plugin.py", "1 / 0")


def test_rows_that_decide_stand_for_all(context):
    """The verdict is about all rows, with their numbers, where the judge is shown some of them; as
    many broken ones as are named are counted, and of more it is said that there are more."""
    (law,) = [
        law for law in invariants.applying(context, EXAMPLE) if law.name == "something_trained"
    ]
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
            yield Context(
                kind_of(name), layout, 64, bound, PLANNED, (contract.RENDERED, contract.APART)
            )


@pytest.mark.slow
def test_every_law_is_judged_on_any_table(model, step_model):
    """On random metrics the library finds the rows that break a law by its checks, for each law."""
    draw = np.random.default_rng(0)
    for context in contexts(model, step_model):
        bounds = sorted({*contract.parameters(context).values(), -1, 0, 1, 2})
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
                    law.name for law in invariants.applying(context, shipped.table)
                ]
                for law, one in zip(
                    invariants.applying(context, shipped.table), found.expectations, strict=True
                ):
                    bad = np.flatnonzero(law_metrics.broken(law, frame, context))
                    assert one.passed == (not len(bad)), law.name
                    assert min(one.broken, findings.NAMED) == min(len(bad), findings.NAMED)


def test_shipped_suites_use_no_tolerance(model, step_model):
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


TRAP: str = tables("scripts.toml")["no_network"]


@pytest.mark.slow
def test_the_gate_asks_nobody(cache_home, tmp_path):
    """A build under a trap for every connection and every look-up of a name."""
    data = SAMPLES / "rm" / "pairs.jsonl"
    command = [sys.executable, "-c", TRAP, "run", "rm", "--model", "qwen2-1.5b", str(data)]
    env = {"PATH": "/usr/bin", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(cache_home)}
    started(*command, "--max-reject", "1", "-o", "out", folder=tmp_path, env=env).ended()
    assert read_manifest(tmp_path / "out")["validation"]["passed"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_worker_loads_no_judge():
    """Nor do help and plan, which are tested with all that they import."""
    body = "import sys, pipeline.shards.part, pipeline.shards.gather, pipeline.processes"
    check = "\nassert not {'great_expectations', 'datasets'} & {*sys.modules}"
    run_python(body + check, ROOT).ended()


def test_one_function_permits():
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


def test_no_manifest_without_the_verdict(context, tmp_path):
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


def test_metrics_are_numbers_whatever_the_data_says(make, tmp_path):
    """No text of the data, and no name of its file, is in what the gate looked at or wrote."""
    row = {"question": "<b>", "answer": "<script>"}
    folder = make("sft", rows_to(tmp_path / "<script>alert(1)<script>.jsonl", row))
    assert "<" not in (folder / "validation.json").read_text("utf-8")


# The part of Great Expectations that judges shipped suites judges as the whole library does.


_JUDGE: str = tables("scripts.toml")["both_judges"]


@pytest.mark.slow
def test_the_part_judges_as_the_whole():
    """Types that shipped suites use, and types that an invariant from elsewhere may name."""
    (part, registered, modules), (whole, every, most) = (
        json.loads(run_python(_JUDGE.replace("PART", part), ROOT).out) for part in ("True", "False")
    )
    assert part == whole
    assert [judgement["broken"] for judgement in part] == [1, 1, 2, 1]
    assert registered < every  # so the part was imported, and not the whole in its place
    assert modules < most


@pytest.mark.slow
def test_every_expectation_is_imported_when_it_is_asked_for():
    names = "import json; from expectations import gx_library as library; print(json.dumps([*{}]))"
    every = run_python(names.format("library.registry()"), ROOT).out
    asked = f"map(lambda name: library.of_type(name).__name__, {json.loads(every)})"
    prepared = f"library.for_shipped_suites() or {asked}"
    one_by_one = run_python(names.format(f"({prepared})"), ROOT).out
    assert len(json.loads(one_by_one)) == len(json.loads(every)) > 40


# Data Docs: Great Expectations' pages, whole without a network, and no part of the verdict.


DATA = SAMPLES / "sft" / "word_problems.jsonl"

# What a page fetches or runs, and what it leads to.
_LOADS = re.compile(r"<(?:script|img|iframe|object|embed)\b|<[^>]*\son\w+=", re.IGNORECASE)
_LINKS = re.compile(r"""<[^>]*\s(?:href|src)=["']?(?!data:,|#)([^"'\s>]+)""")


def test_every_page_is_whole_offline(make, tmp_path):
    """The index leads to a page per suite; none fetches or runs anything."""
    docs = tmp_path / "docs"
    folder = make("sft", DATA, data_docs=docs)
    links = _LINKS.findall((docs / "index.html").read_text("utf-8"))
    assert sorted(links) == sorted(p.name for p in docs.iterdir() if p.name != "index.html")
    judged = json.loads((folder / "validation.json").read_bytes())["expectations"]
    names = {law["table"] for law in judged}
    assert len(links) == len(names)
    for path in docs.iterdir():
        source = path.read_text("utf-8")
        assert not _LOADS.search(source)
        assert path.name == "index.html" or _LINKS.findall(source) == ["index.html"]
        assert "prefers-color-scheme: dark" in source
        assert not re.search(r"https?:", source)
        assert "default-src 'none'" in source
    text = "".join((docs / name).read_text("utf-8") for name in links)
    assert "Status: " in re.sub(r"<[^>]*>", "", text)
    assert "n_trained" in text
    make("sft", DATA, "again", data_docs=docs)  # its own pages are replaced
    assert len(list(docs.iterdir())) == len(names) + 1


def test_a_page_loses_what_is_fetched_or_run():
    """Scripts, styles and images of other hosts, and handlers; text stays."""
    page = (
        "<html><head><script>a()</script><link href='https://x/y.css'></head><body>"
        '<script src=https://x></script><p onclick="b()" class="k">kept</p>'
        "<img src='https://x/z.png' onerror='c()'><a href='https://x'>word</a></body></html>"
    )
    found = gx_runner._offline(page, "<b>title")
    assert not _LOADS.search(found)
    assert _LINKS.findall(found) == ["index.html"]
    assert '<p class="k">kept</p>' in found
    assert "<title>&lt;b&gt;title</title>" in found


def test_a_refused_build_has_pages_and_trouble_with_them_refuses_none(
    make, tmp_path, monkeypatch, capsys
):
    """The verdict comes first, whatever becomes of the pages."""
    law = {"type": "expect_column_values_to_be_between", "severity": "critical"}
    law |= {"kwargs": {"column": "n_tokens", "max_value": 1}}
    suite = json.dumps({"name": "mine", "expectations": [law]})
    docs = tmp_path / "docs"
    with pytest.raises(ExpectationError):
        make("sft", DATA, data_docs=docs, expectations=(("mine.json", suite),))
    assert "failed" in (docs / "index.html").read_text("utf-8")

    def broken(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(gx_runner, "write", broken)
    assert (make("sft", DATA, data_docs=docs) / "manifest.json").exists()
    assert "warning: no Data Docs, OSError: no room" in capsys.readouterr().err


# An invariant on a metric of its own is one file, also in a package that is not ours.


RIGHT = [{"question": f"{n} + 1?", "answer": f"{n + 1}."} for n in range(4)]
WRONG = [*RIGHT[:2], {"question": "Stop.", "answer": "no" + " no" * 40}, RIGHT[3]]


@pytest.fixture
def toy(tmp_path) -> Path:
    """The folder of an installed package with the invariant of CONTRIBUTING.md."""
    return install_examples(tmp_path / "elsewhere", "token_runs")


def forget() -> None:
    """Look for packages once more."""
    catalog._foreign.cache_clear()
    declared.code_version.cache_clear()


@pytest.fixture
def installed(toy, monkeypatch) -> Iterator[None]:
    """The package, in this process."""
    monkeypatch.syspath_prepend(str(toy))
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.usefixtures("installed")
def test_another_text_is_other_code(toy):
    """A package that changes without another version is noticed; one whose module is gone is no
    reason to stop before it is asked for."""
    before = declared.code_version()
    (toy / "token_runs.py").write_text(
        (toy / "token_runs.py").read_text().replace("None, 8", "None, 80")
    )
    forget()
    changed = declared.code_version()
    (toy / "token_runs.py").unlink()
    forget()
    assert len({before, changed, declared.code_version()}) == 3
    entries = next(toy.glob("*.dist-info")) / "entry_points.txt"
    entries.write_text("[posttrain_pipeline.invariants]\nx = no_such_package.laws:SUBJECT\n")
    forget()
    assert declared.code_version()


@pytest.mark.slow
def test_it_stops_a_build(pipeline, tmp_path, toy):
    """A build that was up to date before somebody's package was there is judged by it, and fails:
    the law and the row are named, and what was there stays."""
    data = rows_to(tmp_path / "bad.jsonl", *WRONG)
    command = ("run", "sft", "--model", NAME, data, "-o", "out", "--layout", "packed")
    assert pipeline(*command).status == 0
    assert "up to date" in pipeline(*command).err
    ran = pipeline(*command, PYTHONPATH=str(toy))
    assert ran.status == 3, ran.err
    assert "no_long_runs: 1 of 4 examples (bad.jsonl:3 at train/" in ran.err
    assert read_manifest(tmp_path / "out")["examples"]["kept"] == 4


def subject(values: Any, column: str = "n_own", law: str = "own") -> Subject:
    """Somebody's subject with one metric and one law."""
    return Subject(
        (Metrics(measure=lambda rows: {column: values}),),
        (Invariant(name=law, why="of a test", checks=(none(column),), breaks={column: 1}),),
    )


def test_metrics_that_would_judge_wrongly_are_refused(model, monkeypatch):
    """No fraction is cut off, nothing is missing, and no metric of ours is replaced."""
    known = invariants.subjects()
    ids = pa.array([[5, model.end_of_turn_id]], pa.list_(pa.int32()))
    context = Context(kind_of("sft"), "ragged", 64, model)
    rows = StoredRows(pa.table({"input_ids": ids, "labels": ids}), context)
    cases: tuple[tuple[Any, str, str], ...] = (
        ([0.5], "n_own", "own measures n_own as float64"),
        ([None], "n_own", "own measures n_own as object"),
        (["x"], "n_own", "whole numbers"),
        ([1, 2], "n_own", r"measures n_own for \(2,\)"),
        (1, "n_own", r"measures n_own for \(\)"),
        ([1], "n_tokens", "sequences measures n_tokens, and so does own"),
    )
    for values, column, why in cases:
        own = {"own": subject(values, column)}
        monkeypatch.setattr(invariants, "subjects", lambda own=own: own | known)
        with pytest.raises(GateError, match=why):
            tallies.measured(rows, EXAMPLE)


def test_a_metric_that_raises_cannot_be_judged(make, tmp_path, monkeypatch):
    """Whichever library the error is of, the gate says so."""

    def failing(file: Any) -> Any:
        return pl.DataFrame({"a": [1]}).select("b")

    monkeypatch.setattr(tallies, "shard", failing)
    with pytest.raises(GateError, match="cannot be checked: ColumnNotFoundError"):
        make("sft", rows_to(tmp_path / "good.jsonl", *RIGHT), layout="ragged")


def test_a_name_is_taken_once(monkeypatch):
    """A law called like one of ours would hide it."""
    known = invariants.subjects()
    own = subject(np.zeros(1, np.int64), law="something_trained")
    monkeypatch.setattr(invariants, "subjects", lambda: known | {"own": own})
    with pytest.raises(UsageError, match="own declares the invariant something_trained, and so"):
        invariants.invariants()


def test_what_is_no_subject_is_named(monkeypatch):
    """A package that gives the law alone is told what to give."""
    law = Invariant(
        name="own", why="", checks=(contract.Between("n_tokens", 1),), breaks={"n_tokens": 0}
    )
    monkeypatch.setattr(catalog, "names", lambda package: ["own"])
    monkeypatch.setattr(catalog, "load", lambda *key: law)
    with pytest.raises(UsageError, match=r"own of posttrain_pipeline.invariants.* type Invariant"):
        invariants.subjects()
