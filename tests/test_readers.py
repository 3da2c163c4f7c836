"""Containers to records: nothing is lost, moved or changed, whatever the file is cut into."""

import gzip
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from support import noted, raised, table, table_bytes

from expectations import undo_layout
from pipeline.shards import mapped
from stages import contract, errors, readers
from stages.files import file_hash, file_version, line_block, row_counts
from stages.readers import _tables, jsonl

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


@given(st.lists(st.sampled_from(ODD_LINES), min_size=1, max_size=5))
def test_lines_parsed_together_are_those_parsed_apart(lines):
    rows = line_block.parse_all(lines, b"\n".join(lines))
    assert rows is None or rows == [line_block.parse(line) for line in lines]


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
    """Binary, decimal and time columns do not stop a table from being read."""
    table = pa.table(
        {
            "b": pa.array([b"\xff\0"]),
            "d": pa.array(["1.50"]).cast(pa.decimal128(5, 2)),
            "t": pa.array([1000], pa.timestamp("ms")),
            "s": pa.array([5], pa.duration("s")),
        }
    )
    path = str(folder / "odd.parquet")
    pq.write_table(table, path)
    ((_, _, raw, row, code),) = read(path)
    assert code is None
    assert set(json.loads(raw)) == set(row) == {"b", "d", "t", "s"}
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
    rows = [r.data for batch in readers.load("jsonl").read(piece) for r in batch.records]
    assert rows == ROWS


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
