"""Rows are counted a second time without the reader, and both counts are the same."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import table_bytes

from stages import contract, errors, readers
from stages.files import content, file_hash, file_version, row_counts
from stages.readers import jsonl

SAME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(split: contract.Split) -> row_counts.Count:
    """What the split's reader finds."""
    found = list(readers.load(split.reader).read(split))
    records = [record for lines in found for record in lines.records]
    last = max((record.line for record in records), default=-1)
    return row_counts.Count(len(records), sum(lines.lines for lines in found), last)


LINES = st.lists(
    st.sampled_from([b'{"a": 1}', b"", b"  ", b"\t\r", b"not json", b'{"a": "\\n"}', b"{}"]),
    max_size=12,
)


@SAME
@given(
    lines=LINES,
    end=st.sampled_from([b"\n", b"\r\n"]),
    closed=st.booleans(),
    bom=st.booleans(),
    kind=st.sampled_from(["", ".gz", ".zst"]),
    chunk=st.integers(1, 9),
    size=st.integers(1, 40),
)
def test_lines_are_counted_as_they_are_read(
    tmp_path: Path,
    lines: list[bytes],
    end: bytes,
    closed: bool,
    bom: bool,
    kind: str,
    chunk: int,
    size: int,
) -> None:
    """Blank lines, marks, both line ends, wherever a chunk or a split ends."""
    written = b"\xef\xbb\xbf" * bom + end.join([b'{"first": 0}', *lines]) + end * closed
    packed = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[kind](written)
    path = tmp_path / f"rows.jsonl{kind}"
    path.write_bytes(packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", size)
        splits = jsonl.READER.line_splits(file_version.look(str(path)))
        row_counts.require_covered(str(path), [] if kind else splits)
        expected = [read(split) for split in splits]
        patch.setattr(content, "CHUNK", chunk + 2)
        assert [row_counts.count(split) for split in splits] == expected


def test_the_items_of_an_array_are_counted_and_no_more_than_can_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets, commas, quotes and backslashes inside strings; one value alone, and several."""
    items = [{"a": '],[{"\\'}, [1, [2]], None, "x,y"]
    path = tmp_path / "rows.json"
    for text, known in (
        (json.dumps(items), True),
        (json.dumps(items, indent=1), True),
        ("[]", True),
        ('{"a": [1, {}]}\n{\n"b": 2}', False),
        ('{"a": 1}', False),
    ):
        path.write_text(text, "utf-8")
        split = contract.Split(str(path), 0, 0, file_hash.sha256(path), "json")
        assert row_counts.count(split) == (read(split) if known else None)
    path.write_text(json.dumps(items), "utf-8")
    monkeypatch.setattr(row_counts, "_HELD", 8)
    assert row_counts.count(contract.Split(str(path), 0, 0, "", "json")) is None


def test_parquet_is_counted_by_what_it_says_of_itself(tmp_path: Path) -> None:
    """Row group by row group."""
    path = tmp_path / "rows.parquet"
    path.write_bytes(table_bytes(pa.table({"a": list(range(7))}), "parquet", 3))
    splits = readers.load("parquet").splits(str(path))
    assert [row_counts.count(split) for split in splits] == [read(split) for split in splits]
    assert sum(found.rows for found in map(row_counts.count, splits) if found) == 7


def test_a_file_is_cut_into_all_of_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that are lost, or read twice, are a fault of ours."""
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 4)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' * 5)
    splits = jsonl.READER.line_splits(file_version.look(str(path)))
    row_counts.require_covered(str(path), splits)
    for wrong in (splits[:-1], splits[1:], [splits[0], *splits], splits[::-1]):
        with pytest.raises(errors.ReadingError) as caught:
            row_counts.require_covered(str(path), wrong)
        assert caught.value.exit_code == 1
