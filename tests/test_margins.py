"""Margins of pairs: kept where a row has one, null where it has none, counted, never reversed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import Run, read_manifest, stored_rows, write_rows

from expectations.audits import FAIL, PASS, Totals
from expectations.audits import counts as audit
from pipeline.builds.summary import said
from pipeline.shards.facts import Margins, of_column
from stages import contract, errors
from stages.formats import _pairs, load


def written(path: Path, rows: list[contract.Row]) -> Path:
    """Rows as lines of JSON; each gets a prompt and two answers of its own."""
    texts = ({"prompt": f"Q{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(len(rows)))
    return write_rows(path, [text | row for text, row in zip(texts, rows, strict=True)])


@pytest.mark.parametrize("names", _pairs.SCORES, ids="/".join)
def test_every_spelling_of_scores_gives_a_margin_or_a_tie(names: tuple[str, str]) -> None:
    """The difference of the two, refused where they are equal."""
    better, worse = names
    row: contract.Row = {"prompt": "q", "chosen": "a", "rejected": "b", better: 4, worse: 1.5}
    (made,) = load("preference").read(row, contract.FormatOptions())
    assert isinstance(made, contract.Pair)
    assert made.margin == 2.5
    with pytest.raises(errors.RowError) as refused:
        load("preference").read({**row, worse: 4.0}, contract.FormatOptions())
    assert (refused.value.code, better in refused.value.detail) == ("tie", True)
    for alone in ({**row, worse: None}, {k: v for k, v in row.items() if k != worse}):
        (made,) = load("preference").read(alone, contract.FormatOptions())
        assert isinstance(made, contract.Pair)
        assert made.margin is None
    with pytest.raises(errors.RowError, match=r"'4' is not a finite number") as refused:
        load("preference").read({**row, better: "4"}, contract.FormatOptions())
    assert refused.value.code == "bad_margin"


def test_a_margin_that_is_no_finite_number_is_refused() -> None:
    """Tables can hold NaN and infinities, which JSON cannot."""
    row: contract.Row = {"prompt": "q", "chosen": "a", "rejected": "b"}
    for value in (float("nan"), float("inf"), -float("inf"), 1e39, -1e300, "1", True):
        for named in ({"margin": value}, {"score_chosen": value, "score_rejected": 0}):
            with pytest.raises(errors.RowError) as refused:
                load("preference").read(row | named, contract.FormatOptions())
            assert refused.value.code == "bad_margin", named


def test_one_row_without_a_margin_takes_none_from_the_others(pipeline: Run, tmp_path: Path) -> None:
    """Null where a row has none; manifest, summary and plan count them, but for duplicates."""
    rows: list[contract.Row] = [{"margin": i + 0.5} for i in range(5)]
    del rows[3]["margin"]
    written(tmp_path / "pairs.jsonl", [*rows, {"prompt": "Q0", "chosen": "a0", "rejected": "b0"}])
    command = ("pairs.jsonl", "--model", "qwen2-1.5b")
    seen = pipeline("plan", *command, "--task", "rm")
    assert "margins   of 6 sampled pairs, 2 without one" in seen.out
    done = pipeline("run", "rm", *command, "-o", "out", "--for", "trl", "--dedup").ended()
    assert "margins   of 5 pairs, 1 without one: null in the column margin" in done.err
    out = tmp_path / "out"
    assert [row["margin"] for row in stored_rows(out)] == [0.5, 1.5, 2.5, None, 4.5]
    manifest = read_manifest(out)
    assert manifest["rm"] == {"margins": {"present": 4, "absent": 1}}
    assert "1 pair without a margin" in manifest["trainers"]["trl"]["detail"]
    assert "trl: it needs one for every pair or for none" in done.err
    assert 'remove_columns("margin")' in (out / "launch" / "train_trl.py").read_text()
    pipeline("check", "out").ended()


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.none(), st.floats(-9, 9, width=32)), max_size=30))
def test_counts_are_plain_counts(values: list[float | None]) -> None:
    """Of a column in any pieces; the audit judges the pairs that have one."""
    column = pa.chunked_array([values[:7], values[7:]], pa.float32())
    found = of_column(column)
    given_ = [value for value in values if value is not None]
    below = sum(value < 0 for value in given_)
    assert found == Margins(len(given_), len(values) - len(given_), below)
    assert (said("margins", found.recorded()) == []) == (not given_ or len(given_) == len(values))
    totals = Totals()
    totals.add({"pairs": np.array([found.present, found.negative]), "rows": np.zeros(0, object)})
    judged = audit.MARGINS.judge(None, totals, audit.MARGINS.tolerances)
    # The build fails from more than half on; fewer are told.
    assert found.reversed_by({}) == any(figure.status == FAIL for figure in judged)
    assert found.reversed_by({}) == (below > len(given_) / 2)
    assert (not below) == all(figure.status == PASS for figure in judged)
