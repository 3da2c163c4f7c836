"""Containers to records: nothing is lost, moved or changed, whatever the file is cut into."""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import os
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import normalizing
from support import ROOT, few, noted, raised, records_of, rows_to, started, table, table_bytes

from expectations import undo_layout
from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from pipeline.shards import mapped
from pipeline.tasks import kind_of
from stages import contract, errors, formats, readers
from stages.files import file_hash, file_version, line_block, row_counts
from stages.normalize.stage import Normalize
from stages.readers import _tables, _values, jsonl
from stages.rows import selection

BOM = b"\xef\xbb\xbf"
ROWS = [{"i": i, "text": f"row {i} é {i * 7919 % 1000}"} for i in range(300)]
LINES = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in ROWS)

Found = tuple[int, int | None, bytes, Any, str | None]  # line, offset, raw, data, code


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where this module's inputs lie."""
    return tmp_path_factory.mktemp("inputs")


def put(folder: Path, name: str, content: bytes) -> str:
    """An input file."""
    path = folder / name
    path.write_bytes(content)
    return str(path)


def read(path: str) -> list[Found]:
    """Every record of a file, its line and offset counted from the file's start."""
    reader = readers.load(readers.suffixes()[path[path.index(".", path.rindex("/")) :]])
    found: list[Found] = []
    before = 0
    for split in reader.splits(path):
        lines = 0
        for batch in readers.load(split.reader).read(split):
            for record in batch.records:
                assert lines <= record.line < lines + batch.lines
                offset = None if record.offset is None else record.offset + split.start
                code = record.error[0] if record.error else None
                found.append((before + record.line, offset, record.raw, record.data, code))
            lines += batch.lines
        before += lines
    return found


def data(path: str) -> list[Any]:
    """What the records of a file say."""
    return [record[3] for record in read(path)]


def one_by_one(content: bytes) -> list[Found]:
    """What a JSONL file has, each line that is not blank by itself."""
    found: list[Found] = []
    offset = 0
    for number, line in enumerate(content.split(b"\n")):
        mark = 3 if not number and line.startswith(BOM) else 0
        raw = line[mark:].removesuffix(b"\r")
        if raw.strip():
            one = line_block.record(number, offset + mark, raw, jsonl.MAX_LINE)
            found.append((number, one.offset, one.raw, one.data, one.error and one.error[0]))
        offset += len(line) + 1
    return found


ODD_LINES = (
    *(line.encode("latin-1") for line in table("odd_lines.jsonl")),
    *(b'{"a":' + b"[" * n + b"]" * n + b"}" for n in (62, 63, 64)),
)
ROW = st.dictionaries(st.sampled_from("ab"), st.text(max_size=6) | st.integers(0, 9), max_size=2)
LINE = st.sampled_from(ODD_LINES) | ROW.map(
    lambda row: json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
)


@given(
    lines=st.lists(LINE, max_size=12),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=12, max_size=12),
    bom=st.booleans(),
    closed=st.booleans(),
    size=st.integers(1, 64),
    block=st.sampled_from([1, 2, 7, 16, 64, 1 << 20]),
    batch=st.sampled_from([1, 3, 8192]),
)
def test_records_do_not_depend_on_where_a_file_is_split(
    folder, lines, ends, bom, closed, size, block, batch
):
    """Any splits, blocks and batches give the rows, numbers and offsets of each line by itself."""
    content = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    content = (BOM if bom else b"") + (content if closed else content.rstrip(b"\r\n"))
    path = put(folder, "any.jsonl", content)
    assert read(path) == one_by_one(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", size)
        patch.setattr(jsonl, "BATCH_BYTES", block)
        patch.setattr(jsonl, "BATCH_ROWS", batch)
        pieces = readers.load("jsonl").splits(path)
        assert [p.start for p in pieces] == [0, *(p.stop for p in pieces)][: len(pieces)]
        assert (pieces[-1].stop if pieces else 0) == len(content)
        assert all(content[p.start : p.stop].endswith(b"\n") for p in pieces[:-1])
        assert read(path) == one_by_one(content)


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", PACK)
def test_a_line_beyond_the_limit_is_refused_and_the_next_one_is_read(folder, monkeypatch, suffix):
    """One monstrous line costs its own row only, wherever blocks end, and later numbers and offsets
    stay right."""
    fitting = b'{"a":"' + b"x" * 92 + b'"}'
    content = fitting + b"\r\n" + b'{"a":"' + b"x" * 93 + b'"}\n' + b"y" * 900 + b"\n" + fitting
    path = put(folder, f"monster.jsonl{suffix}", PACK[suffix](content))
    monkeypatch.setattr(jsonl, "MAX_LINE", 100)
    for block in (*range(1, 220, 3), 1 << 20):
        monkeypatch.setattr(jsonl, "BATCH_BYTES", block)
        found = read(path)
        assert [code for *_, code in found] == [None, "line_too_long", "line_too_long", None]
        assert [number for number, *_ in found] == [0, 1, 2, 3]
        assert [offset for _, offset, *_ in found] == [0, 102, 204, content.rindex(fitting)]


def test_archives_of_several_members_give_the_records_of_the_lines(folder):
    """The same lines give the same records, plain or compressed."""
    plain = read(put(folder, "plain.ndjson", LINES))
    for suffix in (".gz", ".zst"):
        packed = PACK[suffix](LINES[:5000]) + PACK[suffix](LINES[5000:])
        assert read(put(folder, f"packed.jsonl{suffix}", packed)) == plain
    assert [record[3] for record in plain] == ROWS


def flipped(content: bytes, at: int, bits: int = 0xFF) -> bytes:
    """The bytes with one of them changed."""
    at %= len(content)
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def arrow_bytes(kind: str) -> bytes:
    """A table of numbers and texts, as Arrow IPC or Parquet."""
    table = pa.table({"i": list(range(5000)), "s": [f"{i * 7919 % 9973}" for i in range(5000)]})
    return table_bytes(table, kind, 1000)


GZ = gzip.compress(LINES)
ZST = zstandard.ZstdCompressor(write_checksum=True).compress(LINES)
PARQUET = arrow_bytes("parquet")
DAMAGED = {
    "half.jsonl.gz": GZ[: len(GZ) // 2],
    "no_trailer.jsonl.gz": GZ[:-8],
    "last_byte_missing.jsonl.gz": GZ[:-1],
    "checksum.jsonl.gz": flipped(GZ, -6),
    "inside.jsonl.gz": flipped(GZ, len(GZ) // 2),
    "text.jsonl.gz": LINES,
    "junk_behind.jsonl.gz": GZ + b"junk",
    "header.jsonl.zst": flipped(ZST, 0),
    "inside.jsonl.zst": flipped(ZST, len(ZST) // 2),
    "checksum.jsonl.zst": flipped(ZST, -1),
    "text.jsonl.zst": LINES,
    "junk_behind.jsonl.zst": ZST + b"junk",
    **{f"cut_by_{n}.jsonl.zst": ZST[:-n] for n in (1, 4, len(ZST) // 2, len(ZST) - 5)},
    "half.json.gz": gzip.compress(b"[" + LINES.replace(b"\n", b",")[:-1] + b"]")[:900],
    **{name: text.encode("latin-1") for name, text in table("damaged_json.jsonl")},
    "absurdly_deep.json": b"[" * 100_000,
    "empty.parquet": b"",
    "text.parquet": b"hello, this is text\n" * 9,
    "no_footer.parquet": PARQUET[:-40],
    "page.parquet": PARQUET[:3000] + bytes(60) + PARQUET[3060:],
    "empty.arrow": b"",
    "text.arrow": b"hello, this is text\n" * 9,
    "no_footer.arrow": arrow_bytes("file")[:-40],
    "cut_stream.arrow": arrow_bytes("stream")[:-5000],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_as_a_whole_and_named(folder, name):
    """Past the damage nobody knows where a row starts; no row of a broken archive is trusted."""
    path = put(folder, name.partition(":")[0], DAMAGED[name])
    raised(errors.ContainerError, read, path, says=re.escape(name))


NOT_JSON = {
    "parquet": (b"PAR1\x15\x04\x15\x00\x15", "binary"),
    "null_bytes": (b"\0" * 64, "binary"),
    "utf_16": ('{"a": 1}\n'.encode("utf-16"), "UTF-16, not UTF-8: byte 0 is 0xff"),
    "utf_16_unmarked": ('{"a": 1}\n'.encode("utf-16-le"), "UTF-16, not UTF-8: byte 1 is 0x00"),
    "utf_16_big_endian": ('{"a": 1}\n'.encode("utf-16-be"), "UTF-16, not UTF-8: byte 0 is 0x00"),
    "utf_32": ('{"a": 1}\n'.encode("utf-32"), "UTF-32, not UTF-8: byte 0 is 0xff"),
}


@pytest.mark.parametrize(("content", "words"), NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json"])
def test_json_that_is_something_else_is_named_so(folder, content, words, suffix):
    """Another encoding, or binary, is one error that names the byte; not a thousand bad rows."""
    packed = gzip.compress(content) if suffix.endswith("gz") else content
    path = put(folder, f"other.{suffix}", packed)
    raised(errors.ContainerError, readers.load(suffix.split(".")[0]).splits, path, says=words)


def test_what_a_file_holds_decides_how_it_is_read(folder):
    """Objects between old line ends, lines that are whole arrays, and packed bytes without their
    suffix."""
    old = put(folder, "old.jsonl", b'{"a": 1}\r{"a": 2}\r')
    assert data(old) == [{"a": 1}, {"a": 2}]
    lists = put(folder, "lists.jsonl", b'[1, 2]\n{"a": 1}\n[3]\n')
    assert [code for *_, code in read(lists)] == ["not_an_object", None, "not_an_object"]
    for name, packed in (("a.jsonl", GZ), ("b.json", ZST)):
        assert data(put(folder, name, packed)) == ROWS


ARRAYS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "compact": lambda rows: json.dumps(rows, separators=(",", ":")).encode(),
    "pretty": lambda rows: json.dumps(rows, indent=2, ensure_ascii=False).encode(),
    "windows": lambda rows: json.dumps(rows, indent=4).replace("\n", "\r\n").encode(),
    "marked": lambda rows: BOM + json.dumps(rows, ensure_ascii=False).encode(),
    "under_a_key": lambda rows: json.dumps({"data": rows}).encode(),
    "under_a_key_pretty": lambda rows: json.dumps({"rows": rows}, indent=2).encode() + b"\n",
    "under_an_odd_key": lambda rows: BOM + json.dumps({'"é" {[:': rows}, indent=1).encode(),
    "objects_in_lines": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "objects_without_a_break": lambda rows: "".join(map(json.dumps, rows)).encode(),
    "pretty_objects": lambda rows: "\n".join(json.dumps(r, indent=2) for r in rows).encode(),
}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("spelling", ARRAYS)
def test_an_array_gives_its_items_in_order_under_any_name(folder, spelling, suffix):
    """An array, or objects one after the other, compact or pretty: item n is record n."""
    content = ARRAYS[spelling](ROWS)
    found = read(put(folder, f"items.json{suffix}", PACK[suffix](content)))
    assert [record[3] for record in found] == ROWS
    assert [record[0] for record in found] == list(range(len(ROWS)))
    for _, offset, raw, _, _ in found:
        assert content[offset : offset + len(raw)] == raw
    lines = put(folder, f"items.jsonl{suffix}", PACK[suffix](content))
    if spelling == "under_a_key":  # one line is one row, whatever stands in it
        assert [record[3] for record in read(lines)] == [{"data": ROWS}]
    elif not spelling.startswith("objects_"):
        assert read(lines) == found


def test_rows_under_the_only_key_of_an_object_are_told_so(folder):
    """Of any size; the glimpse names the key, which other files have none of."""
    many = [{"i": i, "text": "é" * 2000} for i in range(1500)]
    for rows, indent in itertools.product((ROWS[:1], ROWS, many), (None, 1)):
        path = put(folder, "wrapped.json", json.dumps({"examples": rows}, indent=indent).encode())
        assert data(path) == rows
        glimpse = readers.load("json").glimpse(path, 10)
        assert glimpse.key == "examples"
        assert all(one.data in rows for one in glimpse.records)
        plain = put(folder, "plain.json", json.dumps(rows, indent=indent).encode())
        assert readers.load("json").glimpse(plain, 10).key == ""


ROWS_THEMSELVES: list[list[Any]] = table("rows_themselves.jsonl")


@pytest.mark.parametrize("rows", ROWS_THEMSELVES)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_objects_that_wrap_no_rows_are_rows_themselves(folder, rows, suffix):
    """Turns, other keys beside the list, several objects, lists of something else."""
    for indent in (None, 2):
        content = "\n".join(json.dumps(row, indent=indent) for row in rows).encode()
        path = put(folder, f"alone.{suffix}", content)
        assert data(path) == rows
        assert readers.load(suffix).glimpse(path, 5).key == ""


NESTED = [
    {"messages": [{"role": "user", "content": f"é{i}"}], "n": i, "x": i / 3, "none": None}
    for i in range(1000)
]


@pytest.mark.parametrize("kind", ["parquet", "file", "stream"])
def test_tables_give_the_rows_that_were_written(folder, monkeypatch, kind):
    """Numbered over all record batches and row groups, of which each is a piece."""
    name = "rows.parquet" if kind == "parquet" else f"{kind}.arrow"
    path = put(folder, name, table_bytes(pa.Table.from_pylist(NESTED), kind, 300))
    monkeypatch.setattr(_tables, "BATCH_ROWS", 100)
    found = read(path)
    assert [record[3] for record in found] == NESTED
    assert [record[0] for record in found] == list(range(1000))
    assert all(json.loads(raw) == row for _, _, raw, row, _ in found)
    if kind == "parquet":
        pieces = readers.load("parquet").splits(path)
        assert [(p.start, p.stop, p.piece) for p in pieces] == [(i, i + 1, i) for i in range(4)]
        assert [*map(row_counts.count, pieces)] == [*map(counts_read, pieces)]


def test_values_without_a_json_spelling_still_have_raw_text(folder):
    """Binary, decimal and time columns, and keys that are null everywhere, stop no table."""
    table = pa.table(
        {
            "b": pa.array([b"\xff\0"]),
            "d": pa.array(["1.50"]).cast(pa.decimal128(5, 2)),
            "t": pa.array([1000], pa.timestamp("ms")),
            "s": pa.array([5], pa.duration("s")),
            "n": pa.array([[{"a": 1, "b": None}, {"a": 2, "b": None}]]),  # which no cast takes
        }
    )
    path = str(folder / "odd.parquet")
    pq.write_table(table, path)
    ((_, _, raw, row, code),) = read(path)
    assert code is None
    assert set(json.loads(raw)) == set(row) == {"b", "d", "t", "s", "n"}
    assert json.loads(raw)["d"] == "1.50"


CHANGING = {
    "jsonl": LINES,
    "jsonl.gz": GZ,
    "jsonl.zst": ZST,
    "json": ARRAYS["pretty"](ROWS),
    "arrow": arrow_bytes("stream"),
    "parquet": PARQUET,
}


@pytest.mark.parametrize("suffix", CHANGING)
def test_an_input_that_changed_is_noticed(folder, suffix):
    """Bytes that differ from those that were planned over are never read as if they were them."""
    before = CHANGING[suffix]
    path = put(folder, f"change.{suffix}", before)
    reader = readers.load(readers.suffixes()[f".{suffix}"])
    pieces = reader.splits(path)
    at = 60 if suffix == "parquet" else len(before) // 2
    shrunk = [before[: before.rindex(b"{")]] if suffix == "jsonl" else []
    for changed in (flipped(before, at, 1), *shrunk):
        Path(path).write_bytes(changed)
        with pytest.raises(errors.SurroundingsError, match="changed"):
            [list(reader.read(piece)) for piece in pieces]


def test_a_line_added_behind_a_split_changes_nothing_in_it(folder):
    """A split is its own bytes: what was appended later is simply not part of the build."""
    (piece,) = readers.load("jsonl").splits(put(folder, "grew.jsonl", LINES))
    put(folder, "grew.jsonl", LINES + b'{"late": 1}\n')
    assert [record.data for record in records_of(piece)] == ROWS


@given(content=st.binary(max_size=80) | st.text('{}[]":,\\ \t01e-NaN\n').map(str.encode))
@example(content=b"\r\n\r\n")
@example(content=b"\r\r\n{}")
def test_no_bytes_crash_the_line_reader(folder, content):
    """Any bytes are rows as the standard parser reads them, refused rows, or a refused file."""
    path = put(folder, "bytes.jsonl", content)
    try:
        found = read(path)
    except errors.ContainerError:
        return
    assert len(found) <= content.count(b"\n") + 1
    assert all((row is None) == (code is not None) for _, _, _, row, code in found)
    assert all(code or json.loads(raw) == row for _, _, raw, row, code in found)


def test_json_lines_under_the_name_of_json_are_read_as_lines(folder):
    """One object a line is JSONL whatever it is called: cut into splits, bad rows refused alone."""
    content = LINES + b"not json\n" + LINES
    lines, array = put(folder, "lines.jsonl", content), put(folder, "lines.json", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", 1000)
        pieces = readers.load("json").splits(array)
        assert [(p.start, p.stop, p.sha256, p.reader) for p in pieces] == [
            (p.start, p.stop, p.sha256, "jsonl") for p in readers.load("jsonl").splits(lines)
        ]
        assert read(array) == read(lines)
    assert [code for *_, code in read(array)].count("bad_json") == 1


# Rows are counted a second time without the reader, and both counts are the same: see test_frames.


def counts_read(split: contract.Split) -> row_counts.Count:
    """What the split's reader finds."""
    found = list(readers.load(split.reader).read(split))
    records = [record for lines in found for record in lines.records]
    last = max((record.line for record in records), default=-1)
    return row_counts.Count(len(records), sum(lines.lines for lines in found), last)


def test_the_items_of_an_array_are_counted_and_no_more_than_can_be_held(tmp_path, monkeypatch):
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
        assert row_counts.count(split) == (counts_read(split) if known else None)
    path.write_text(json.dumps(items), "utf-8")
    monkeypatch.setattr(row_counts, "_HELD", 8)
    assert row_counts.count(contract.Split(str(path), 0, 0, "", "json")) is None


def test_a_file_is_cut_into_all_of_its_pieces(tmp_path, monkeypatch):
    """Pieces that are lost, or read twice, are a fault of ours."""
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 4)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n' * 5)
    splits = jsonl.READER.line_splits(file_version.look(str(path)))
    row_counts.require_covered(str(path), splits)
    for wrong in (splits[:-1], splits[1:], [splits[0], *splits], splits[::-1]):
        caught = raised(errors.ReadingError, row_counts.require_covered, str(path), wrong)
        assert caught.exit_code == 1


# Row ids: what is written is read again, and what is none of ours names nothing.

_TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(st.data())
def test_what_is_written_is_read_again(data):
    """Names of inputs may hold colons, hashes, digits and line breaks."""
    odd = st.sampled_from(["a:1", "b#2", "c:3#4", "d\ne", "9"])
    sources = data.draw(st.lists(_TEXTS | odd, min_size=1, max_size=4, unique=True))
    rows = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, len(sources) - 1), st.integers(1, 1 << 40), st.integers(-1, 1 << 20)
            ),
            min_size=1,
        )
    )
    columns = np.array(rows, np.int64).T
    place = dict(zip(undo_layout.PLACE, columns, strict=True))
    found = undo_layout.names_read(sources, undo_layout.names_written(sources, place))
    for name in undo_layout.PLACE:
        assert found[name].tolist() == place[name].tolist()


def test_what_is_no_row_id_names_nothing():
    """Not even a line, where a part of it looks like one."""
    odd = f"|:|x|x:|x:1#|x:1#2#|x:a|x:\u0663|x:-1|x:1\n|x:{10**19}".split("|")
    found = undo_layout.names_read(["x"], pa.array([*odd, None, "y:1", "x:7"], pa.string()))
    assert found["source"].tolist() == [-1] * 13 + [0]
    assert found["line"].tolist() == [-1] * 12 + [1, 7]
    assert found["sequence"].tolist() == [-1] * 14


# Files that are read: their hash, and pieces of mapped ones, whose pages are not held.

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def file(tmp_path) -> mapped.Mapped:
    """The content, mapped."""
    path = tmp_path / "part.arrow"
    path.write_bytes(CONTENT)
    return mapped.Mapped(path)


def test_pieces_of_a_mapped_file_are_the_bytes_that_were_asked_for(file, tmp_path, monkeypatch):
    """From where the view begins: many are read, few are looked at, and what was put together in
    memory is never read. Bytes that are missing raise; mapped ones would end the process."""
    calls = noted(monkeypatch, os, "pread")
    view, memory = file.part(file.content[100:]), file.part(memoryview(bytes(1000)))
    for count, reads in ((1, 0), (3, 0), (100, 100)):
        bounds = [(7 * n, 7 * n + 5) for n in range(count)]
        found = mapped.joined([(view, *bound) for bound in bounds])
        assert bytes(found) == b"".join(CONTENT[100:][slice(*bound)] for bound in bounds)
        assert len(calls) == reads
    assert bytes(mapped.joined([(memory, n, n + 1) for n in range(100)])) == bytes(100)
    assert (memory.start, len(calls)) == (-1, 100)
    os.truncate(tmp_path / "part.arrow", 9_000)
    with pytest.raises(OSError, match="shorter"):
        mapped.joined([(file.part(file.content), n, n + 100) for n in range(0, 15_000, 150)])
    (tmp_path / "empty").touch()
    assert bytes(mapped.Mapped(tmp_path / "empty").content) == b""


@pytest.mark.parametrize("size", [0, 1, file_hash._BLOCK, file_hash._BLOCK + 1])
def test_the_hash_is_that_of_all_bytes(size, tmp_path):
    """Of a file by path or by name, and of a stream while it is copied."""
    content = bytes(i % 251 for i in range(size))
    path = tmp_path / "file"
    path.write_bytes(content)
    wanted = hashlib.sha256(content).hexdigest()
    copy = io.BytesIO()
    assert file_hash.sha256(path) == file_hash.sha256(str(path)) == wanted
    assert file_hash.copied(io.BytesIO(content), copy) == wanted
    assert copy.getvalue() == content


# Equal content gives equal examples, whatever it is packed in, or the difference is asked about;
# damage is local, or told.

Rows = list[dict[str, Any]]


def lines(rows: Rows) -> bytes:
    """JSONL."""
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


FORMS: dict[str, Callable[[Rows], bytes]] = {
    "rows.jsonl": lines,
    "crlf.jsonl": lambda rows: b"\xef\xbb\xbf" + lines(rows).replace(b"\n", b"\r\n")[:-2],
    "rows.jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "rows.jsonl.zst": lambda rows: zstandard.compress(lines(rows)),
    "array.json": lambda rows: json.dumps(rows).encode(),
    "pretty.json": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows).encode(),
    "array.json.zst": lambda rows: zstandard.compress(json.dumps(rows, indent=1).encode()),
    "rows.parquet": lambda rows: table_bytes(pa.Table.from_pylist(rows), "parquet", 4),
    "rows.arrow": lambda rows: table_bytes(pa.Table.from_pylist(rows), "stream", 3),
}


def records(path: str, salvage: bool = False) -> tuple[list[contract.Record], str | None]:
    """All records of a path, numbered over its splits, and the damage that ended them."""
    config = Config.of("sft", (path,), "m", Path("o"), salvage=salvage, cache_dir=Path(path).parent)
    found: list[contract.Record] = []
    damage = None
    for source in scan(config):
        for split in source.splits:
            before = len(found)
            for part in readers.load(split.reader).read(split):
                damage = part.damage or damage
                for record in part.records:
                    record.line += before
                    found.append(record)
    return found, damage


ODD = st.sampled_from(table("odd_texts.toml")["containers"])
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | ODD
TURNS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3).map(
    lambda pairs: [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
)
KINDS: dict[str, tuple[str, Any]] = {
    "openai": ("sft", st.fixed_dictionaries({"messages": TURNS})),
    "query_response": ("sft", st.fixed_dictionaries({"question": TEXT, "answer": TEXT})),
    "preference": (
        "rm",
        st.fixed_dictionaries(
            {"prompt": TEXT, "chosen": TEXT, "rejected": TEXT, "margin": st.floats(0, 9, width=32)}
        ),
    ),
    "stepwise": (
        "prm",
        st.integers(1, 4).flatmap(
            lambda n: st.fixed_dictionaries(
                {
                    "prompt": TEXT,
                    "completions": st.lists(TEXT, min_size=n, max_size=n),
                    "labels": st.lists(st.booleans(), min_size=n, max_size=n),
                }
            )
        ),
    ),
}


@pytest.mark.parametrize("kind", few(KINDS, 2))
def test_equal_rows_give_equal_columns_from_every_container(folder, kind):
    """jsonl = json array = gz = zst = parquet = arrow: messages, pairs and steps alike."""
    task, strategy = KINDS[kind]

    @settings(max_examples=8)
    @given(rows=st.lists(strategy, min_size=1, max_size=9))
    def check(rows: Rows) -> None:
        made = {}
        for name, form in FORMS.items():
            path = put(folder, name, form(rows))
            made[name] = normalizing(task, kind)(records(path)[0])
        first = made["rows.jsonl"]
        assert first.num_rows >= len(rows)
        assert all(batch.equals(first) for batch in made.values()), made.keys()

    check()


EXCHANGES = [
    {"question": f"q{i}", "answer": "a" * (i % 50) + str(i * 7919 % 1000)} for i in range(3000)
]
PLAIN = lines(EXCHANGES)


@pytest.mark.parametrize("keep", [0.3, 0.999])
@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_salvage_keeps_what_stands_before_a_cut(folder, suffix, keep):
    """Every row that can be decompressed, the cut one refused by name; refused whole without."""
    packed = gzip.compress(PLAIN) if suffix == "gz" else zstandard.compress(PLAIN)
    cut = packed[: int(len(packed) * keep)]
    path = put(folder, f"cut.jsonl.{suffix}", cut)
    raised(errors.ContainerError, records, path, says="--salvage")
    found, damage = records(path, salvage=True)
    opened: Any = zlib.decompressobj(31) if suffix == "gz" else None
    opened = opened or zstandard.ZstdDecompressor().decompressobj()
    text = opened.decompress(cut)
    whole = text.count(b"\n")
    assert damage is not None
    assert [record.data for record in found[:whole]] == EXCHANGES[:whole]
    assert len(found) == whole + bool(text.rpartition(b"\n")[2])
    assert all(record.error for record in found[whole:] if record.data is None)
    flawed = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    if suffix == "gz":  # noticed at the end: all rows are there, and the file is marked
        found, damage = records(put(folder, f"cut.jsonl.{suffix}", flawed), salvage=True)
        assert [record.data for record in found] == EXCHANGES
        assert "incorrect data check" in str(damage)


def test_a_frame_may_refer_back_as_far_as_the_tool_lets_it(folder):
    """``zstd --long=31`` says so in every frame of unknown length, however short its text is."""
    rows = lines(EXCHANGES)
    squeezed = zstandard.ZstdCompressor().compressobj()
    frame = bytearray(squeezed.compress(rows) + squeezed.flush())
    frame[5] = 31 - 10 << 3  # the exponent of what may be referred back to
    assert zstandard.get_frame_parameters(bytes(frame)).window_size == 1 << 31
    (split,) = readers.load("jsonl").splits(put(folder, "far.jsonl.zst", frame))
    assert [one.data for one in records_of(split)] == EXCHANGES
    assert row_counts.count(split).rows == len(EXCHANGES)


@pytest.mark.parametrize("name", ["cut.json", "oops.json", "cut.arrow"])
def test_salvage_keeps_the_items_before_the_damage_of_a_table(folder, name):
    """Arrays and Arrow streams too; the damage is told without the file's name, since equal bytes
    are one part whatever they are called."""
    content = {
        "cut.json": json.dumps(EXCHANGES).encode()[:50_000],
        "oops.json": json.dumps(EXCHANGES).encode().replace(b'"q1000"', b"oops"),
        "cut.arrow": table_bytes(pa.Table.from_pylist(EXCHANGES), "stream", 100)[:-20_000],
    }[name]
    path = put(folder, name, content)
    raised(errors.ContainerError, records, path, says=name)
    found, damage = records(path, salvage=True)
    assert damage
    assert name not in damage
    assert 500 < len(found) < 3000
    assert [record.data for record in found] == EXCHANGES[: len(found)]


_PEAK: str = table("programs.toml")["peak_of_a_reading"]


@pytest.mark.parametrize("suffix", few(["jsonl.zst", "jsonl"], 1))
def test_a_monstrous_line_does_not_exhaust_memory(folder, suffix):
    """A line of 300 MB costs the limit on lines, not its own size; packed, it is a bomb."""
    good = b'{"question": "q", "answer": "a"}\n'
    piece = b"word " * (1 << 18)
    path = folder / f"monster.{suffix}"
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if suffix.endswith("zst"):
            file = stack.enter_context(zstandard.ZstdCompressor(level=1).stream_writer(file))
        file.write(good + b'{"question": "q", "answer": "')
        for _ in range(240):
            file.write(piece)
        file.write(b'"}\n' + good)
    peak, *codes = started(sys.executable, "-c", _PEAK, path, folder=ROOT).ended().out.split()
    assert codes == ["None", "line_too_long", "None"]
    assert int(peak) < 3 * (jsonl.MAX_LINE >> 20)


@given(
    rows=st.lists(st.dictionaries(TEXT, st.integers(-(2**63), 2**63 - 1) | TEXT, max_size=3)),
    indent=st.sampled_from([None, 2]),
    window=st.integers(1, 40),
    in_array=st.booleans(),
)
def test_items_do_not_depend_on_the_window(folder, rows, indent, window, in_array):
    """However little of an array is held at a time, items, numbers and offsets are the same."""
    spell = json.dumps(rows, indent=indent, ensure_ascii=False)
    if not in_array:
        spell = "\n".join(json.dumps(row, indent=indent or 1, ensure_ascii=False) for row in rows)
    content = spell.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_values, "WINDOW", window)
        found = [r for part in _values.records(io.BytesIO(content)) for r in part.records]
    assert [record.data for record in found] == rows
    for record in found:
        assert content[record.offset :].startswith(record.raw)


def test_a_bad_byte_in_an_array_is_named(folder):
    """Its place in the file, wherever the window ends, and what it is."""
    content = json.dumps(EXCHANGES, ensure_ascii=False).encode()
    at = len(content) // 2
    path = put(folder, "latin.json", content[:at] + b"\xe9" + content[at:])
    for window in (7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_values, "WINDOW", window)
            raised(errors.ContainerError, records, path, says=f"byte {at} is 0xe9")


def test_two_columns_of_one_name_are_refused(folder):
    """A row could hold only one of them."""
    path = folder / "twice.parquet"
    pq.write_table(pa.table([pa.array(["a"]), pa.array(["b"])], names=["q", "q"]), path)
    with pytest.raises(errors.ContainerError, match=r"twice\.parquet: Two columns are called 'q'"):
        records(str(path))


def test_a_value_that_cannot_be_read_costs_its_own_row(folder):
    """Bytes that are not UTF-8 in a text column, among good rows."""
    offsets, data = b"".join(n.to_bytes(4, "little") for n in (0, 1, 3, 4)), b"a\xff\xfeb"
    column = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    table = pa.table({"q": column})
    found, _ = records(put(folder, "bytes.arrow", table_bytes(table, "file", 9)))
    assert [record.data for record in found] == [{"q": "a"}, None, {"q": "b"}]
    assert [record.error and record.error[0] for record in found] == [None, "bad_encoding", None]


WORDS = st.text("abc ", min_size=1, max_size=5).filter(str.strip)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["city", "unit", "days"]), WORDS, min_size=1, max_size=3
)


def chat(arguments: contract.Row, answer: str) -> contract.Row:
    """A question, a call, its result and an answer."""
    told = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    call = {"role": "assistant", "content": None, "tool_calls": [told]}
    turns: list[contract.Row] = [{"role": "user", "content": "q"}, call]
    turns += [{"role": "tool", "content": "r"}, {"role": "assistant", "content": answer}]
    return {"messages": turns}


def written(folder: Path, rows: list[contract.Row]) -> dict[str, Path]:
    """The same rows as lines, as Parquet and as Arrow."""
    paths = {name: folder / f"rows.{name}" for name in ("jsonl", "parquet", "arrow")}
    rows_to(paths["jsonl"], *rows)
    table = pa.Table.from_struct_array(pa.array(rows))  # the keys of all rows
    for name, kind in (("parquet", "parquet"), ("arrow", "file")):
        paths[name].write_bytes(table_bytes(table, kind, 9))
    return paths


def normalized(path: Path, reading: str, choice: str | None) -> tuple[list[Any], set[Any]]:
    """The turns of every row that is used, and the codes of the others."""
    reader = readers.load(path.suffix[1:])
    options = contract.FormatOptions(null_fields=choice)
    stage = Normalize(kind_of("sft"), formats.load(reading), options)
    turns, codes = [], set()
    for split in reader.splits(str(path)):
        for lines in reader.read(split):
            batch = stage(lines.records)
            codes |= set(batch.column("reject_code").to_pylist()) - {None}
            turns += batch.column("messages").to_pylist()
    return turns, codes


def objects(value: Any) -> Any:
    """Turns with their fields as objects: a table's keys stand in one order for all rows."""
    return [[{**t, "fields": json.loads(t["fields"] or "{}")} for t in turns] for turns in value]


@settings(max_examples=15)
@given(rows=st.lists(st.tuples(ARGUMENTS, WORDS), min_size=1, max_size=4))
def test_every_container_gives_the_same_examples_or_asks(tmp_path_factory, rows):
    """Arguments that differ between rows are nulls in a table: dropped when told, never printed."""
    paths = written(tmp_path_factory.mktemp("rows"), [chat(*row) for row in rows])
    wanted, codes = normalized(paths["jsonl"], "openai", None)
    assert codes == set()
    differ = len({tuple(sorted(arguments)) for arguments, _ in rows}) > 1
    for name in ("parquet", "arrow"):
        _, asked = normalized(paths[name], "openai", None)
        assert asked == ({"null_fields"} if differ else set())
        told, codes = normalized(paths[name], "openai", "drop")
        assert codes == set()
        assert objects(told) == objects(wanted)


@settings(max_examples=15)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"question": WORDS, "answer": WORDS},
            optional={"system": WORDS, "id": st.integers(0, 5)},
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_null_column_is_a_column_that_the_row_lacks(tmp_path_factory, rows):
    """Columns that only some rows have are null in the others, and mean nothing there."""
    paths = written(tmp_path_factory.mktemp("rows"), rows)
    wanted = normalized(paths["jsonl"], "query_response", None)
    for name in ("parquet", "arrow"):
        assert normalized(paths[name], "query_response", None) == wanted


def test_nothing_but_what_a_template_prints_whole_is_asked_about():
    """Null in a turn's own keys is the same as no key."""
    row = {"messages": [{"role": "user", "content": "q", "tool_calls": None}], "tools": None}
    assert selection.settled(row, None) == row
    row["tools"] = [{"name": "f", "parameters": None}]
    assert selection.settled(row, "keep") == row
    assert selection.settled(row, "drop")["tools"] == [{"name": "f"}]
    raised(errors.AskError, selection.settled, row, None, says="tools holds nulls")
