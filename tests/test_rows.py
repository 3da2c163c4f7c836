"""Rows of every format: what each kind of row says, and why a row is refused."""

from __future__ import annotations

import pytest
from rows import READ, REFUSED, UNUSABLE, WHOLE
from support import check_reading

from pipeline.tasks import kind_of
from stages import catalog, formats
from stages.contract import FormatOptions
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
