"""Rows of every format: what each kind of row says, and why a row is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from rows import READ, REFUSED, UNUSABLE, WHOLE
from support import Run, check_reading, few, read_manifest, rows_to

from pipeline.tasks import kind_of
from stages import catalog, formats
from stages.contract import FormatOptions, Refused
from stages.errors import DataError, RowError
from stages.normalize.evidence import detect


@pytest.mark.parametrize("name", READ)
def test_a_row_says_what_it_says(name: str) -> None:
    """Detected among all formats of its task, and turned into exactly these examples."""
    one = READ[name]
    assert formats.choose(one.reading, kind_of(one.task)).matches(one.row)
    assert "3 of 3" in detect([one.row] * 3, kind_of(one.task), "x.jsonl").evidence
    check_reading(one.reading, one.task, one.row, one.examples)


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_says_nothing_clear_is_refused(name: str) -> None:
    """Each fault has its code, and a reason that names it; nobody guesses what was meant."""
    one = REFUSED[name]
    with pytest.raises(RowError) as caught:
        formats.choose(one.reading, kind_of(one.task)).read(one.row, FormatOptions())
    assert caught.value.code == one.code
    assert caught.value.detail
    assert one.words in caught.value.detail


@pytest.mark.parametrize("name", UNUSABLE)
def test_data_for_another_kind_of_training_is_refused_by_its_name(name: str) -> None:
    """Detection says what the rows are for and what to give instead; no option has them read."""
    one = UNUSABLE[name]
    with pytest.raises(DataError) as refused:
        detect([one.row] * 3, kind_of(one.task), "x.jsonl")
    assert one.words in refused.value.what
    assert refused.value.remedy
    if one.reading:
        found = formats.load(one.reading)
        assert found.matches(one.row)
        with pytest.raises(RowError):
            found.read(one.row, FormatOptions())


@pytest.mark.parametrize("task", few(["prm", "rm", "sft"], 1))
def test_rows_are_planned_and_built(pipeline: Run, tmp_path: Path, task: str) -> None:
    """One file a row, all in one build: plan and run see the same readings and examples."""
    cases = {name: one for name, one in READ.items() if (one.built, one.task) == (True, task)}
    files = [rows_to(tmp_path / f"{name}.jsonl", case.row).name for name, case in cases.items()]
    # a template with a place for tools and for reasoning, where rows have them
    command = (*files, "--model", "qwen2-1.5b" if task == "prm" else "qwen3-0.6b")
    planned = pipeline("plan", *command, "--task", task, "--json").ended().told
    pipeline("run", task, *command, "-o", "out", "--max-reject", 1).ended()
    manifest = read_manifest(tmp_path / "out")
    wanted = [example for case in cases.values() for example in case.examples]
    refused = Counter(example.code for example in wanted if isinstance(example, Refused))
    assert manifest["rows"]["used"] == len(cases)
    assert manifest["examples"]["kept"] >= len(wanted) - refused.total()
    assert manifest["examples"]["rejected_by_code"] == refused
    readings = [case.reading for case in cases.values()]
    assert [one["format"] for one in planned["inputs"]] == readings
    assert [one["format"] for one in manifest["inputs"]] == readings


def test_every_format_is_tested() -> None:
    """No format is without an example here."""
    known = [one for task in ("sft", "rm", "prm") for one in formats.for_kind(kind_of(task))]
    read = {one.reading.partition("/")[0] for one in READ.values()} | {"pretokenized"}
    unusable = {one.reading for one in UNUSABLE.values() if one.reading}
    assert {one.name for one in known if one.usable} <= read
    assert {one.name for one in known if not one.usable} <= unusable
    whole = {one.reading.partition("/")[0] for one in WHOLE.values()}
    assert not whole & unusable
    assert whole | unusable == set(catalog.names("stages.formats"))
