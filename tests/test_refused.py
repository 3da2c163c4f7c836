"""A refused build says what would let it pass, and leaves ``DIR.failed`` beside the old build."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SAMPLES, Ran, few, read_manifest
from test_publish import fingerprint

from pipeline.builder import reject_limit
from pipeline.builder.rejects import Ledger
from pipeline.options.config import Config

Run = Callable[..., Ran]
GOOD = SAMPLES / "sft" / "word_problems.jsonl"
MODEL = ("--model", "qwen2-1.5b", "-o", "out")
KEPT = ["reasons.json", "rejects.jsonl", "report.html"]


def rows(path: Path, answers: list[str]) -> Path:
    """A file of questions with these answers."""
    path.write_text("".join(json.dumps({"question": "q", "answer": a}) + "\n" for a in answers))
    return path


def names(folder: Path) -> list[str]:
    """Of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_refused_build_leaves_its_reasons(pipeline: Run, tmp_path: Path) -> None:
    """The folder has what ``--json`` prints, is replaced by the next and removed by a success."""
    assert pipeline("run", "sft", GOOD, *MODEL).status == 0
    before = fingerprint(tmp_path / "out")
    bad = rows(tmp_path / "bad.jsonl", [""] * 30 + ["a"] * 70)
    ran = pipeline("run", "sft", bad, *MODEL, "--json")
    told = json.loads(ran.out)
    assert (ran.status, told["status"]) == (3, "refused")
    assert names(tmp_path / "out.failed") == KEPT
    assert told["paths"]["failed"] == "out.failed"
    assert told["paths"]["rejects"] == "out.failed/rejects.jsonl"
    assert "out.failed/rejects.jsonl" in told["remedy"]
    assert told["remedy"] in ran.err
    reasons = json.loads((tmp_path / "out.failed" / "reasons.json").read_text())
    assert (reasons["figures"], reasons["message"]) == (told["figures"], told["message"])
    assert told["figures"]["by_code"]["empty_answer"]["rows"] == 30
    assert told["figures"]["share"] == 0.3
    assert "30 of 100 rows were refused (30.0%; at most 1.0% by --max-reject)" in told["message"]
    page = (tmp_path / "out.failed" / "report.html").read_text()
    assert "30 of 100" in page
    assert "empty_answer: the first rows" in page
    assert "<script" not in page
    assert fingerprint(tmp_path / "out") == before

    fewer = rows(tmp_path / "bad.jsonl", [""] * 20 + ["a"] * 80)
    assert pipeline("run", "sft", fewer, *MODEL).status == 3
    assert (tmp_path / "out.failed" / "rejects.jsonl").read_text().count("\n") == 20
    least = json.loads((tmp_path / "out.failed" / "reasons.json").read_text())["figures"]
    assert least["passes_with_max_reject"] == 0.2

    assert pipeline("run", "sft", GOOD, *MODEL).status == 0  # unchanged, and no longer failed
    assert not (tmp_path / "out.failed").exists()
    assert pipeline("run", "sft", fewer, *MODEL).status == 3
    assert pipeline("run", "sft", fewer, *MODEL, "--max-reject", "0.2").status == 0
    assert not (tmp_path / "out.failed").exists()


def test_a_folder_with_other_files_is_left_alone(pipeline: Run, tmp_path: Path) -> None:
    """The message then names no folder."""
    (tmp_path / "out.failed").mkdir()
    (tmp_path / "out.failed" / "notes.txt").write_text("mine")
    bad = rows(tmp_path / "bad.jsonl", [""] * 30)
    ran = pipeline("run", "sft", bad, *MODEL)
    assert ran.status == 3
    assert "out.failed" not in ran.err
    assert names(tmp_path / "out.failed") == ["notes.txt"]


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "is empty"), ("\n\n", "is empty"), ('{"a": 1}\n', "no format"), ("{\n" * 9, "no row")],
)
def test_what_is_refused_before_it_begins_leaves_its_reasons(
    pipeline: Run, tmp_path: Path, content: str, says: str
) -> None:
    """There are no refused rows then."""
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    ran = pipeline("run", "sft", path, *MODEL)
    assert ran.status == 3, ran.err
    assert says in ran.err
    assert names(tmp_path / "out.failed") == ["reasons.json", "report.html"]
    assert "out.failed/report.html" in ran.err


def test_a_broken_expectation_leaves_the_verdict(pipeline: Run, tmp_path: Path) -> None:
    """A suite of the user's that the rows do not meet."""
    short = {"column": "n_tokens", "max_value": 1}
    kind = "expect_column_values_to_be_between"
    suite = [{"type": kind, "kwargs": short, "meta": {"severity": "critical"}}]
    (tmp_path / "short.json").write_text(
        json.dumps({"name": "short", "meta": {"table": "examples"}, "expectations": suite})
    )
    ran = pipeline("run", "sft", GOOD, *MODEL, "--expectations", "short.json")
    assert ran.status == 3, ran.err
    assert "validation.json" in names(tmp_path / "out.failed")
    verdict = json.loads((tmp_path / "out.failed" / "validation.json").read_text())
    assert verdict["passed"] is False
    assert "Expectations that do not hold" in (tmp_path / "out.failed" / "report.html").read_text()


def test_too_long_rows_say_at_which_length_they_fit(pipeline: Run, tmp_path: Path) -> None:
    """The length that the message offers lets the build pass, and none of 1024 fewer does."""
    answers = ["word " * (100 * n) for n in range(1, 41)]
    data = rows(tmp_path / "long.jsonl", answers)
    limit = ("--max-reject", "0.26", "--max-length")
    ran = pipeline("run", "sft", data, *MODEL, *limit, "512", "--json")
    told = json.loads(ran.out)
    long = told["figures"]["too_long"]
    assert long["examples"] == told["figures"]["refused"] == long["fit"]["4096"], long
    assert f"With --max-length {long['passes_at']} this build passes." in told["remedy"]
    less = pipeline("run", "sft", data, *MODEL, *limit, long["passes_at"] - 1024)
    assert less.status == 3, less.err
    assert pipeline("run", "sft", data, *MODEL, *limit, long["passes_at"]).status == 0


@given(
    st.lists(st.integers(600, 90_000), min_size=1, max_size=80),
    st.integers(0, 30),
    st.integers(0, 500),
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
)
def test_the_offered_lengths_keep_their_word(
    long: list[int], others: int, good: int, limit: float
) -> None:
    """Counts are exact, all fit the longest, and the least one passes where the one below fails."""
    fits = reject_limit.fitting(long)
    assert all(count == sum(n <= length for n in long) for length, count in fits.items())
    assert fits[max(fits)] == len(long)
    ledger, count = Ledger(), len(long) + others + good
    for n in long:
        ledger.count("too_long", f"{n} tokens", "r")
    for _ in range(others):
        ledger.count("empty_answer", "", "r")
    config = Config.of("sft", ("x",), "m", Path("o"), max_reject=limit)
    (of_all,) = reject_limit.limits(config)
    error = reject_limit.error_of(ledger, count, left=True, config=config, limit=of_all)
    figures = error.figures
    at = figures["too_long"]["passes_at"]

    def passes(length: int) -> bool:
        left = others + sum(n > length for n in long)
        return not reject_limit.too_many(left, count, limit)

    if at is None:
        assert not passes(max(long))
    else:
        assert passes(at)
        assert at == 1024 or not passes(at - 1024) or at - 1024 < min(long)
    assert not reject_limit.too_many(ledger.rejected_rows, count, figures["passes_with_max_reject"])


EMPTY = {"e.jsonl": b"", "e.jsonl.gz": gzip.compress(b""), "e.json": b"[]", "b.jsonl": b"\n \n"}


@pytest.mark.parametrize("name", few(sorted(EMPTY), 1))
def test_one_empty_file_among_many_is_a_choice(pipeline: Run, tmp_path: Path, name: str) -> None:
    """Refused, with the flag in the message; or a warning, and an input of 0 rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows(folder / "a.jsonl", ["a", "b"])
    rows(folder / "z.jsonl", ["c"])
    (folder / name).write_bytes(EMPTY[name])
    ran = pipeline("run", "sft", folder, *MODEL)
    assert ran.status == 3
    assert f"{name} is empty (1 of 3 files are)" in ran.err
    assert "--empty warn" in ran.err
    planned = pipeline("plan", folder, *MODEL, "--empty", "warn", "--json")
    assert planned.status == 0, planned.err
    assert json.loads(planned.out)["rows"] == 3
    ran = pipeline("run", "sft", folder, *MODEL, "--empty", "warn")
    assert ran.status == 0, ran.err
    assert f"warning   empty: {name}" in ran.err
    inputs: list[dict[str, Any]] = read_manifest(tmp_path / "out")["inputs"]
    assert {one["path"]: one["rows"] for one in inputs} == {"a.jsonl": 2, "z.jsonl": 1, name: 0}
    assert pipeline("check", "out").status == 0
    again = pipeline("run", "sft", folder, *MODEL, "--empty", "warn")
    assert "already up to date" in again.err
    rows(folder / "a.jsonl", [])
    rows(folder / "z.jsonl", [])
    ran = pipeline("run", "sft", folder, *MODEL, "--empty", "warn")
    assert ran.status == 3
    assert "is empty" in ran.err
