"""Rows are counted a second time without the reader, and both counts are the same."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
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


VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab"\\[]{},'), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@SAME
@example(rows=["[["], indent=None, chunk=4)  # a string from one chunk into the next, alone
@given(
    rows=st.lists(VALUES, max_size=6), indent=st.sampled_from([None, 1]), chunk=st.integers(4, 12)
)
def test_items_are_counted_as_they_are_read(
    tmp_path: Path, rows: list[Any], indent: int | None, chunk: int
) -> None:
    """Arrays of anything, with brackets, commas, quotes and backslashes inside strings."""
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows, indent=indent), "utf-8")
    split = contract.Split(str(path), 0, 0, file_hash.sha256(path), "json")
    expected = read(split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "CHUNK", chunk)
        assert (
            row_counts.count(split)
            == expected
            == row_counts.Count(len(rows), len(rows), len(rows) - 1)
        )


def test_objects_one_after_the_other_are_counted(tmp_path: Path) -> None:
    """Pretty-printed objects without an array; other values have no marks to count by."""
    path = tmp_path / "rows.json"
    for text, rows in (('{"a": [1, {}]}\n{\n"b": 2}', 2), ('{"a": 1} 3 "x"', None)):
        path.write_text(text, "utf-8")
        found = row_counts.count(contract.Split(str(path), 0, 0, "", "json"))
        assert (found and found.rows) == rows


def test_tables_are_counted_by_what_they_say_of_themselves(tmp_path: Path) -> None:
    """Parquet by row group; Arrow as a file and as a stream."""
    table = pa.table({"a": list(range(7))})
    (tmp_path / "rows.parquet").write_bytes(table_bytes(table, "parquet", 3))
    for kind in ("file", "stream"):
        (tmp_path / f"{kind}.arrow").write_bytes(table_bytes(table, kind, 4))
    for path in sorted(map(str, tmp_path.iterdir())):
        name = readers.of_path(path)
        assert name is not None
        splits = readers.load(name).splits(path)
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
