"""Files whose rows have several formats: each row is read by the one that it fits, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import Run, read_manifest, rows_to, stored_rows

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions
from stages.errors import DataError, RowError, UsageError
from stages.normalize.mixture import detect_mixture

Row = dict[str, Any]
MODEL = ("--model", "qwen2-1.5b")


def turns(number: int) -> Row:
    """A row of openai."""
    said = [("user", f"hi {number}"), ("assistant", f"hello {number}")]
    return {"messages": [{"role": role, "content": text} for role, text in said], "id": number}


def asked(number: int) -> Row:
    """A row of query_response."""
    return {"question": f"q {number}", "answer": f"a {number}", "level": "easy"}


ROWS = [asked(n) if n % 3 else turns(n) for n in range(60)]


def trained(out: Path) -> dict[str, Any]:
    """Ids and labels by row."""
    return {row["row_id"]: (row["input_ids"], row["labels"]) for row in stored_rows(out)}


def test_each_row_is_read_as_in_a_file_of_its_own(pipeline: Run, tmp_path: Path) -> None:
    """Counted by format, with its unread columns, from a recipe too; without a word nothing is
    mixed, and the message names the option with the formats and counts."""
    data = rows_to(tmp_path / "mixed.jsonl", *ROWS)
    counts = "--mixed-formats (query_response in 40, openai in 20 of 60 sampled rows)"
    asked_about = pipeline("run", "sft", data, *MODEL, "-o", "out").refused(3)
    assert counts in asked_about.err.replace("\n", " ")
    files = [
        rows_to(tmp_path / f"{kind.__name__}.jsonl", *(kind(number) for number in range(60))).name
        for kind in (turns, asked)
    ]
    pipeline("run", "sft", *files, *MODEL, "-o", "alone", "--layout", "ragged").ended()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "mixed.jsonl"\noutput = "out"\nkeep = 0\n'
        'layout = "ragged"\nmixed-formats = true\n'
    )
    ran = pipeline("build", recipe).ended()
    told = "20 rows as openai, 40 rows as query_response"
    assert f"by format {told}\n" in ran.err
    assert told in (tmp_path / "out" / "report.html").read_text("utf-8")
    found, alone = trained(tmp_path / "out"), trained(tmp_path / "alone")
    assert len(found) == 60
    for number in range(60):
        name = "asked" if number % 3 else "turns"
        assert found[f"mixed.jsonl:{number + 1}"] == alone[f"{name}.jsonl:{number + 1}"]
    (source,) = read_manifest(tmp_path / "out")["inputs"]
    assert source["format"] == "openai+query_response"
    assert source["formats"] == {"openai": 20, "query_response": 40}
    assert source["evidence"] == "by row: query_response in 40, openai in 20 of 60 sampled rows"
    assert {one["column"]: one["rows"] for one in source["unread"]} == {"id": 20, "level": 40}
    pipeline("check", "out").ended()


def test_a_row_of_two_formats_is_refused_by_name() -> None:
    """A few alone, many with the file; so is a row of none."""
    both = asked(1) | turns(1)
    kind = kind_of("sft")
    with pytest.raises(DataError, match=r"3 of 63 sampled rows read as openai .* query_response"):
        detect_mixture([*ROWS, *[both] * 3], kind, "x.jsonl")
    found = detect_mixture([*ROWS * 3, both, {"other": 1}], kind, "x.jsonl")
    assert found is not None
    mixture = formats.load(found.reading)
    for row, code in ((both, "ambiguous_format"), ({"other": 1}, "no_format")):
        assert mixture.matches(row) is None
        with pytest.raises(RowError) as caught:
            mixture.read(row, FormatOptions())
        assert caught.value.code == code
    assert detect_mixture([asked(n) for n in range(9)], kind, "x.jsonl") is None


def test_what_is_no_mixture() -> None:
    """Ratings up to the first error and ratings of all steps mean other labels; ``--format`` names
    one format."""
    first = {"problem": "p", "steps": ["a", "b"], "label": 1, "final_answer_correct": False}
    every = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}
    with pytest.raises(DataError, match="files of their own"):
        detect_mixture([first, every] * 9, kind_of("prm"), "x.jsonl")
    with pytest.raises(UsageError, match="names one format"):
        formats.choose("openai+alpaca", kind_of("sft"))
