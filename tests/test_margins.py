"""Margins of pairs: kept where a row has one, null where it has none, counted, never reversed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_from_disk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Run, read_manifest

from expectations.audits import FAIL, Totals
from expectations.audits import step_labels as audit
from pipeline.manifest import in_words
from pipeline.shards.facts import Margins, of_column
from stages.contract import FormatOptions, Pair, Row
from stages.errors import ExpectationError, RowError
from stages.formats import _pairs, load

Make = Callable[..., Path]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows as lines of JSON; each gets a prompt and two answers of its own."""
    texts = ({"prompt": f"Q{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(len(rows)))
    lines = [json.dumps(text | row) for text, row in zip(texts, rows, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("names", _pairs.SCORES, ids="/".join)
def test_every_spelling_of_scores_gives_a_margin_or_a_tie(names: tuple[str, str]) -> None:
    """The difference of the two, refused where they are equal."""
    better, worse = names
    row: Row = {"prompt": "q", "chosen": "a", "rejected": "b", better: 4, worse: 1.5}
    (made,) = load("preference").read(row, FormatOptions())
    assert isinstance(made, Pair)
    assert made.margin == 2.5
    with pytest.raises(RowError) as refused:
        load("preference").read({**row, worse: 4.0}, FormatOptions())
    assert (refused.value.code, better in refused.value.detail) == ("tie", True)
    for alone in ({**row, worse: None}, {k: v for k, v in row.items() if k != worse}):
        (made,) = load("preference").read(alone, FormatOptions())
        assert isinstance(made, Pair)
        assert made.margin is None
    with pytest.raises(RowError, match=r"'4' is not a finite number") as refused:
        load("preference").read({**row, better: "4"}, FormatOptions())
    assert refused.value.code == "bad_margin"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 1e39, -1e300, "1", True]
)
def test_a_margin_that_is_no_finite_number_is_refused(value: Any) -> None:
    """Tables can hold NaN and infinities, which JSON cannot."""
    row: Row = {"prompt": "q", "chosen": "a", "rejected": "b"}
    for named in ({"margin": value}, {"score_chosen": value, "score_rejected": 0}):
        with pytest.raises(RowError) as refused:
            load("preference").read(row | named, FormatOptions())
        assert refused.value.code == "bad_margin"


def test_a_nan_of_a_table_reaches_no_shard(pipeline: Run, tmp_path: Path) -> None:
    """The row is refused by name, and the margins of the others stay."""
    texts = {name: [f"{name} {i}" for i in range(3)] for name in ("prompt", "chosen", "rejected")}
    pq.write_table(pa.table({**texts, "margin": [1.0, float("nan"), None]}), tmp_path / "p.parquet")
    pipeline("run", "rm", "p.parquet", "--model", "qwen2-1.5b", "-o", "out").ended()
    assert read_manifest(tmp_path / "out")["rows"]["rejected_by_code"] == {"bad_margin": 1}
    assert load_from_disk(str(tmp_path / "out"))["train"]["margin"][:] == [1.0, None]


def test_one_row_without_a_margin_takes_none_from_the_others(pipeline: Run, tmp_path: Path) -> None:
    """Null where a row has none; manifest, summary and plan count them."""
    rows: list[dict[str, Any]] = [{"margin": i + 0.5} for i in range(5)]
    del rows[3]["margin"]
    written(tmp_path / "pairs.jsonl", rows)
    command = ("pairs.jsonl", "--model", "qwen2-1.5b")
    seen = pipeline("plan", *command, "--task", "rm")
    assert "margins   of 5 sampled pairs, 1 without one" in seen.out
    done = pipeline("run", "rm", *command, "-o", "out", "--for", "trl").ended()
    assert "margins   of 5 pairs, 1 without one: null in the column margin" in done.err
    out = tmp_path / "out"
    stored = load_from_disk(str(out))["train"]["margin"][:]
    assert stored == [0.5, 1.5, 2.5, None, 4.5]
    manifest = read_manifest(out)
    assert manifest["rm"] == {"margins": {"present": 4, "absent": 1}}
    assert "1 pair without a margin" in manifest["trainers"]["trl"]["detail"]
    assert "trl: it needs one for every pair or for none" in done.err
    assert 'remove_columns("margin")' in (out / "launch" / "train_trl.py").read_text()
    assert pipeline("check", "out").status == 0


def test_what_dedup_removes_is_in_no_count(make: Make, tmp_path: Path) -> None:
    """Margins are those of the pairs that are kept, and without one there is no column."""
    pair = {"prompt": "q", "chosen": "a", "rejected": "b"}
    data = written(tmp_path / "pairs.jsonl", [pair, {**pair, "margin": 1.0}, {}])
    out = make("rm", data, dedup=True)
    assert read_manifest(out)["rm"] == {"margins": {"present": 0, "absent": 2}}
    assert "margin" not in load_from_disk(str(out))["train"].column_names
    out = make("rm", data, output="all")
    assert load_from_disk(str(out))["train"]["margin"][:] == [None, 1.0, None]
    chat = tmp_path / "chat.jsonl"
    chat.write_text(json.dumps({"prompt": "q", "completion": "a"}) + "\n")
    assert read_manifest(make("sft", chat, output="chat"))["rm"] is None


def test_stages_one_by_one_keep_them_too(pipeline: Run, tmp_path: Path) -> None:
    """The chain by hand stores the same column as a build."""
    written(tmp_path / "pairs.jsonl", [{"margin": 1.0}, {}, {"margin": 3.0}])
    options = ("--model", "qwen2-1.5b")
    assert pipeline("run", "rm", "pairs.jsonl", *options, "-o", "out").status == 0
    pipeline("run", "rm", "pairs.jsonl", *options, "-o", "e.arrow", "--until", "validate").ended()
    pipeline("stage", "ragged", "e.arrow", "-o", "chain").ended()
    both = [load_from_disk(str(tmp_path / name))["train"]["margin"][:] for name in ("out", "chain")]
    assert both == [[1.0, None, 3.0]] * 2


def test_mostly_reversed_pairs_fail_the_build(pipeline: Run, tmp_path: Path) -> None:
    """Exit 3 with what to do; plan says so before; each of the ways on builds."""
    scores = {"score_chosen": 1, "score_rejected": 3}
    written(tmp_path / "pairs.jsonl", [scores] * 3 + [{"margin": 1}, {}, {}])
    command = ("pairs.jsonl", "--model", "qwen2-1.5b")
    seen = pipeline("plan", *command, "--task", "rm", "--json")
    said = json.loads(seen.out)
    assert said["margins"] == {"present": 4, "absent": 2, "negative": 3}
    assert said["rejects"]["build_would_stop"]
    done = pipeline("run", "rm", *command, "-o", "out")
    assert done.status == 3
    assert "3 of 4 margins below zero" in done.err
    for word in ("swap them", "--map chosen=rejected", "drop the rows", "--tolerance margins.fail"):
        assert word in done.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    names = ("chosen=rejected", "rejected=chosen")
    names += ("score_chosen=score_rejected", "score_rejected=score_chosen")
    swapped = [word for name in names for word in ("--map", name)]
    pipeline("run", "rm", *command, *swapped, "-o", "swapped").ended()
    first = load_from_disk(str(tmp_path / "swapped"))["train"][0]
    assert first["margin"] == 2.0
    pipeline("run", "rm", *command, "-o", "kept", "--tolerance", "margins.fail=1").ended()
    assert load_from_disk(str(tmp_path / "kept"))["train"]["margin"][0] == -2.0


def test_half_of_them_below_zero_is_told_and_builds(make: Make, tmp_path: Path) -> None:
    """The build fails from more than half on."""
    data = written(tmp_path / "pairs.jsonl", [{"margin": -1}, {"margin": 1}, {}])
    assert read_manifest(make("rm", data))["audits"]["margins"]["status"] == "warn"
    data = written(tmp_path / "pairs.jsonl", [{"margin": -1}, {"margin": 1}, {"margin": -1}])
    with pytest.raises(ExpectationError, match="2 of 3 margins"):
        make("rm", data)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.none(), st.floats(-9, 9, width=32)), max_size=30))
def test_counts_are_plain_counts(values: list[float | None]) -> None:
    """Of a column in any pieces; the audit judges the pairs that have one."""
    column = pa.chunked_array([values[:7], values[7:]], pa.float32())
    found = of_column(column)
    given_ = [value for value in values if value is not None]
    below = sum(value < 0 for value in given_)
    assert found == Margins(len(given_), len(values) - len(given_), below)
    assert (in_words.margins(found.recorded()) is None) == (
        not given_ or len(given_) == len(values)
    )
    totals = Totals()
    totals.add({"pairs": np.array([found.present, found.negative]), "rows": np.zeros(0, object)})
    judged = audit.MARGINS.judge(None, totals, audit.MARGINS.tolerances)
    assert found.reversed_by({}) == any(figure.status == FAIL for figure in judged)
