"""The docs say what the program does: generated pages are current, commands run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from support import ROOT

from stages import readers
from stages.contract import Record
from stages.errors import ContainerError
from stages.tokenizers.profiles import all_profiles


def test_generated_pages_are_current() -> None:
    """They are what ``make docs`` writes; where they are not, the difference is shown."""
    stale = runpy.run_path(str(ROOT / "docs" / "generate.py"))["stale"]()
    assert not stale, f"run `make docs` and commit what it changes:\n{stale}"


def _documented_cases() -> list[tuple[str, bytes, str, str]]:
    """The rows of docs/inputs.md that have an example: what, the file's content, what happens, and
    the reader of the section."""
    text = (ROOT / "docs" / "inputs.md").read_text("utf-8")
    lines, _, tables = text.partition("### Tables of texts")
    found = []
    for reader, section in (("jsonl", lines), ("csv", tables)):
        rows = re.findall(r"^\| ([^|]+) \| `([^|]+)` \| ([^|]+) \|$", section, re.MULTILINE)
        marks = ("b'", ".encode(", "bytes(")
        cases = [row for row in rows if any(mark in row[1] for mark in marks)]
        found += [(what, eval(example, {}), outcome, reader) for what, example, outcome in cases]
    return found


def _records(path: Path) -> list[Record]:
    reader = readers.load(path.suffix[1:])
    if reader.name == "csv":  # others are not refused for what a look at them shows
        reader.glimpse(str(path), 10)
    return [
        record
        for split in reader.splits(str(path))
        for lines in readers.load(split.reader).read(split)
        for record in lines.records
    ]


CASES = _documented_cases()
assert len(CASES) >= 39  # they are found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_inputs_are_read_as_documented(tmp_path: Path, case: tuple[str, bytes, str, str]) -> None:
    """Each example of the table gives the rows, the refusal or the error that stands beside it."""
    _, content, outcome, reader = case
    path = tmp_path / f"example.{reader}"
    path.write_bytes(content)
    refusal = re.search(r"file refused: `([^`]+)`", outcome)
    if refusal is not None:
        with pytest.raises(ContainerError, match=re.escape(refusal[1])):
            _records(path)
        return
    found = _records(path)
    codes = re.findall(r"refused: `(\w+)`", outcome)
    rows = re.search(r"(\d+) rows?\b", outcome)
    assert [record.error[0] for record in found if record.error] == codes
    assert sum(record.data is not None for record in found) == int(rows[1] if rows else 0)


def _declared() -> dict[str, list[str]]:
    """The rows of docs/models.md that name a profile."""
    text = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line[:3] == "| `"]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_of_models_says_what_profiles_declare() -> None:
    """End of turn, eos, pad, stops, bos and what becomes of a dialogue."""
    declared = _declared()
    known = sorted(set(declared) & set(all_profiles()))
    assert len(known) >= 5
    for name in known:
        profile = all_profiles()[name]
        assert declared[name] == [
            f"`{profile.end_of_turn}`",
            f"`{profile.eos_token}`",
            f"`{profile.pad_token}`",
            " ".join(f"`{token}`" for token in profile.generation_eos),
            profile.bos_policy,
            "one per turn" if profile.one_example_per_turn else "one example",
        ]
        assert profile.pad_token not in (profile.eos_token, profile.end_of_turn)
        assert profile.end_of_turn in profile.generation_eos


def test_the_table_of_asks_names_tests_that_there_are() -> None:
    """Every ask of docs/why.md is shown by a test that exists, or by an option or file."""
    page = (ROOT / "docs" / "why.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page.split("## Every ask")[1], re.M)
    asks = [row for row in rows if row[0] not in ("report", "what")]
    asks = [row for row in asks if "::" in row[2]]
    assert len(asks) > 35
    assert {report for report, _, _ in asks} == {
        *("never stops", "padding", "stop marker", "reward loss 0", "step labels")
    }
    for path, name in re.findall(r"`(tests/[\w/.]+)::(\w+)`", page):
        assert f"def {name}(" in (ROOT / path).read_text("utf-8"), f"{path}::{name}"
