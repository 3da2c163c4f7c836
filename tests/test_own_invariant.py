"""An invariant on a metric of its own is one file, also in a package that is not ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import NAME
from support import contributed, install_examples, read_manifest, rows_to

from expectations import invariants, stored_rows, tallies
from expectations.contract import EXAMPLE, Between, Context, Invariant, Metrics, Subject, none
from pipeline.inputs import declared
from pipeline.tasks import kind_of
from stages import catalog
from stages.errors import GateError, UsageError

GOOD = [{"question": f"{n} + 1?", "answer": f"{n + 1}."} for n in range(4)]
BAD = [*GOOD[:2], {"question": "Stop.", "answer": "no" + " no" * 40}, GOOD[3]]

pytestmark = pytest.mark.great_expectations


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
    (toy / "token_runs.py").write_text(contributed("token_runs").replace("None, 8", "None, 80"))
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
    data = rows_to(tmp_path / "bad.jsonl", *BAD)
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
    rows = stored_rows.StoredRows(pa.table({"input_ids": ids, "labels": ids}), context)
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
        make("sft", rows_to(tmp_path / "good.jsonl", *GOOD), layout="ragged")


def test_a_name_is_taken_once(monkeypatch):
    """A law called like one of ours would hide it."""
    known = invariants.subjects()
    own = subject(np.zeros(1, np.int64), law="something_trained")
    monkeypatch.setattr(invariants, "subjects", lambda: known | {"own": own})
    with pytest.raises(UsageError, match="own declares the invariant something_trained, and so"):
        invariants.invariants()


def test_what_is_no_subject_is_named(monkeypatch):
    """A package that gives the law alone is told what to give."""
    law = Invariant(name="own", why="", checks=(Between("n_tokens", 1),), breaks={"n_tokens": 0})
    monkeypatch.setattr(catalog, "names", lambda package: ["own"])
    monkeypatch.setattr(catalog, "load", lambda *key: law)
    with pytest.raises(UsageError, match=r"own of posttrain_pipeline.invariants.* type Invariant"):
        invariants.subjects()
