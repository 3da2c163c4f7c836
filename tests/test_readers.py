"""Containers to records: nothing is lost, moved or changed, whatever the file is cut into."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import table_bytes

from stages import readers
from stages.contract import Split
from stages.errors import ContainerError, SurroundingsError
from stages.readers import _tables, jsonl

BOM = b"\xef\xbb\xbf"
ROWS = [{"i": i, "text": f"row {i} é {i * 7919 % 1000}"} for i in range(300)]
LINES = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in ROWS)

Found = tuple[int, int | None, bytes, Any, str | None]  # line, offset, raw, data, code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def by_hand(content: bytes) -> list[tuple[int, bytes]]:
    """The rows of a JSONL file, the slow way: number and text of each line that is not blank."""
    lines = content.removeprefix(BOM).split(b"\n")
    texts = [line[:-1] if line.endswith(b"\r") else line for line in lines]
    return [(number, text) for number, text in enumerate(texts) if text.strip()]


LINE = st.one_of(
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=6) | st.integers(0, 9), max_size=2).map(
        lambda row: json.dumps(row, ensure_ascii=False).encode("utf-8", "replace")
    ),
    st.sampled_from(
        [
            b"",
            b"   ",
            b"\t",
            b"not json",
            b'{"a": "\xff"}',
            b'{"a":1,"a":2}',
            '{"a": "x\u2028y\u2029z\x85"}'.encode(),
            b'{"long": "' + b"x" * 90 + b'"}',
            b'  {"indented": 1}  ',
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(LINE, max_size=12),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=12, max_size=12),
    bom=st.booleans(),
    closed=st.booleans(),
    size=st.integers(1, 64),
)
def test_records_do_not_depend_on_where_a_file_is_split(
    folder: Path, lines: list[bytes], ends: list[bytes], bom: bool, closed: bool, size: int
) -> None:
    """Any split size gives the rows, numbers and offsets of a reading line by line."""
    content = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    content = (BOM if bom else b"") + (content if closed else content.rstrip(b"\r\n"))
    path = put(folder, "any.jsonl", content)
    whole = read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", size)
        pieces = readers.load("jsonl").splits(path)
        assert [p.start for p in pieces] == [0, *(p.stop for p in pieces)][: len(pieces)]
        assert (pieces[-1].stop if pieces else 0) == len(content)
        assert read(path) == whole
    assert [(number, raw) for number, _, raw, _, _ in whole] == by_hand(content)
    for _, offset, raw, _, _ in whole:
        assert offset is not None
        assert content[offset : offset + len(raw)] == raw


def test_an_offset_points_at_the_first_byte_of_its_row(folder: Path) -> None:
    """A row's text stands in the file at its offset, behind a byte-order mark too."""
    path = put(folder, "mark.jsonl", BOM + b'{"a":1}\n{"b":2}\n')
    assert [(offset, raw) for _, offset, raw, _, _ in read(path)] == [
        (3, b'{"a":1}'),
        (11, b'{"b":2}'),
    ]


def test_a_mark_inside_the_file_is_treated_alike_in_every_split(folder: Path) -> None:
    """Only the file's first bytes can be a byte-order mark; a split's first bytes are not."""
    path = put(folder, "marks.jsonl", b'{"a":1}\n' + BOM + b'{"b":2}\n')
    whole = read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", 2)
        assert read(path) == whole


def test_splits_come_from_bytes_alone(folder: Path) -> None:
    """Splits tile the file, end at line ends, and carry the hash of their own bytes."""
    path = put(folder, "tiles.jsonl", LINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", 1000)
        pieces = readers.load("jsonl").splits(path)
        assert len(pieces) > 5
        for piece in pieces:
            assert LINES[piece.start : piece.stop].endswith(b"\n")
            assert piece.stop - piece.start >= min(1000, len(LINES) - piece.start)
        assert len({piece.sha256 for piece in pieces}) == len(pieces)
        assert b"".join(LINES[p.start : p.stop] for p in pieces) == LINES
        assert data(path) == ROWS


def test_a_line_longer_than_a_split_stays_whole(folder: Path) -> None:
    """A row belongs to the split that holds its first byte, however long it is."""
    long = json.dumps({"text": "x" * 5000}).encode()
    path = put(folder, "long.jsonl", b'{"a":1}\n' + long + b'\n{"b":2}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", 100)
        assert [len(raw) for _, _, raw, _, _ in read(path)] == [7, len(long), 7]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_beyond_the_limit_is_refused_and_the_next_one_is_read(
    folder: Path, suffix: str
) -> None:
    """One monstrous line costs its own row only, and later numbers and offsets stay right."""
    fitting = b'{"a":"' + b"x" * 92 + b'"}'
    content = fitting + b"\r\n" + b'{"a":"' + b"x" * 93 + b'"}\n' + b"y" * 900 + b"\n" + fitting
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".zst": zstandard.compress,
    }
    path = put(folder, f"monster.jsonl{suffix}", pack[suffix](content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "MAX_LINE", 100)
        found = read(path)
    assert [code for *_, code in found] == [None, "line_too_long", "line_too_long", None]
    assert [number for number, *_ in found] == [0, 1, 2, 3]
    assert found[3][1] == content.rindex(fitting)


def test_raw_line_separators_are_text(folder: Path) -> None:
    """Lines end at the newline and nowhere else."""
    row = {"a": "x\u2028y\u2029z\x85\x0b\x0c\x1c"}
    path = put(folder, "separators.jsonl", json.dumps(row, ensure_ascii=False).encode() + b"\n")
    assert data(path) == [row]


def test_every_batch_of_a_long_file_counts_on(folder: Path) -> None:
    """Numbers and offsets run on over the batches that one split is read in."""
    path = put(folder, "batches.jsonl", b"\n".join(LINES.splitlines()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_ROWS", 7)
        assert read(path) == read(put(folder, "same.jsonl", LINES))


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst"])
def test_compression_changes_no_record(folder: Path, suffix: str) -> None:
    """The same lines give the same records, plain or compressed."""
    packed = LINES
    if suffix.endswith(".gz"):
        packed = gzip.compress(LINES[:5000]) + gzip.compress(LINES[5000:])  # two members
    elif suffix.endswith(".zst"):
        packed = zstandard.compress(LINES[:5000]) + zstandard.compress(LINES[5000:])
    found = read(put(folder, f"packed{suffix}", packed))
    assert found == read(put(folder, "plain.jsonl", LINES))
    assert [record[3] for record in found] == ROWS


def flipped(content: bytes, at: int, bits: int = 0xFF) -> bytes:
    """The bytes with one of them changed."""
    at %= len(content)
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


GZ = gzip.compress(LINES)
ZST = zstandard.ZstdCompressor(write_checksum=True).compress(LINES)
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
    "half.json.gz": gzip.compress(b"[" + LINES.replace(b"\n", b",")[:-1] + b"]")[:900],
}


@pytest.mark.parametrize(("name", "content"), DAMAGED.items(), ids=DAMAGED)
def test_a_damaged_archive_is_refused_as_a_whole(folder: Path, name: str, content: bytes) -> None:
    """No row of an archive is trusted when its stream is cut off or changed."""
    path = put(folder, name, content)
    with pytest.raises(ContainerError, match=name):
        read(path)


@pytest.mark.parametrize("cut", [1, 4, len(ZST) // 2, len(ZST) - 5])
def test_a_truncated_zstandard_file_is_refused(folder: Path, cut: int) -> None:
    """A frame that ends too early loses rows, so the file is damaged."""
    path = put(folder, "cut.jsonl.zst", ZST[:-cut])
    with pytest.raises(ContainerError):
        read(path)


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
def test_json_that_is_something_else_is_named_so(
    folder: Path, content: bytes, words: str, suffix: str
) -> None:
    """Another encoding, or binary, is one error that names the byte; not a thousand bad rows."""
    packed = gzip.compress(content) if suffix.endswith("gz") else content
    path = put(folder, f"other.{suffix}", packed)
    with pytest.raises(ContainerError, match=words):
        readers.load(suffix.split(".")[0]).splits(path)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "ndjson"])
@pytest.mark.parametrize("spelling", ["compact", "pretty", "marked", "pretty_objects"])
def test_an_array_under_the_name_of_jsonl_is_read(folder: Path, spelling: str, suffix: str) -> None:
    """What a file holds decides, not what it is called: item n is record n."""
    content = ARRAYS[spelling](ROWS)
    packed = {"jsonl.gz": gzip.compress(content), "jsonl.zst": zstandard.compress(content)}
    path = put(folder, f"array.{suffix}", packed.get(suffix, content))
    assert data(path) == ROWS


def test_lines_that_end_in_a_lone_return_are_read(folder: Path) -> None:
    """Old line ends: the objects stand one after the other, with blanks between."""
    path = put(folder, "old.jsonl", b'{"a": 1}\r{"a": 2}\r')
    assert data(path) == [{"a": 1}, {"a": 2}]


def test_rows_that_are_lists_stay_rows(folder: Path) -> None:
    """A line that is a whole array is a row of the wrong type, not the file's one array."""
    path = put(folder, "lists.jsonl", b'[1, 2]\n{"a": 1}\n[3]\n')
    assert [code for *_, code in read(path)] == ["not_an_object", None, "not_an_object"]


def test_compressed_bytes_are_seen_without_their_suffix(folder: Path) -> None:
    """A download that lost its suffix is read by its first bytes."""
    for name, content in (("a.jsonl", gzip.compress(LINES)), ("b.json", zstandard.compress(LINES))):
        assert data(put(folder, name, content)) == ROWS


ARRAYS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "compact": lambda rows: json.dumps(rows, separators=(",", ":")).encode(),
    "pretty": lambda rows: json.dumps(rows, indent=2, ensure_ascii=False).encode(),
    "windows": lambda rows: json.dumps(rows, indent=4).replace("\n", "\r\n").encode(),
    "marked": lambda rows: BOM + json.dumps(rows, ensure_ascii=False).encode(),
    "objects_in_lines": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "objects_without_a_break": lambda rows: "".join(map(json.dumps, rows)).encode(),
    "pretty_objects": lambda rows: "\n".join(json.dumps(r, indent=2) for r in rows).encode(),
}


@pytest.mark.parametrize("spell", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_a_json_file_gives_its_items_in_order(
    folder: Path, spell: Callable[[list[dict[str, Any]]], bytes], suffix: str
) -> None:
    """An array, or objects one after the other, compact or pretty: item n is record n."""
    content = spell(ROWS)
    packed = {".json": content, ".json.gz": gzip.compress(content)}
    path = put(folder, f"items{suffix}", packed.get(suffix, zstandard.compress(content)))
    found = read(path)
    assert [record[3] for record in found] == ROWS
    assert [record[0] for record in found] == list(range(len(ROWS)))
    for _, offset, raw, _, _ in found:
        assert offset is not None
        assert content[offset : offset + len(raw)] == raw


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), st.integers(0, 9))
    ),
    indent=st.sampled_from([None, 1]),
)
def test_any_array_gives_its_items(
    folder: Path, rows: list[dict[str, int]], indent: int | None
) -> None:
    """Items are found by JSON's own grammar, whatever brackets and quotes stand in texts."""
    text = json.dumps([{"t": '"},{[', **row} for row in rows], indent=indent, ensure_ascii=False)
    path = put(folder, "any.json", text.encode())
    assert data(path) == [{"t": '"},{[', **row} for row in rows]


def test_a_bad_item_costs_its_own_row_only(folder: Path) -> None:
    """An item that is no strict object is refused by name; the others are read."""
    text = b'[{"a":1}, 3, {"a":1,"a":2}, {"a":NaN}, {"a":9223372036854775808}, [], {"a":2}]'
    path = put(folder, "odd.json", text)
    found = read(path)
    assert [code for *_, code in found] == [
        None,
        "not_an_object",
        "duplicate_key",
        "bad_json",
        "integer_range",
        "not_an_object",
        None,
    ]
    assert [record[3] for record in found if record[3]] == [{"a": 1}, {"a": 2}]


BROKEN_ARRAYS = {
    "not_closed": b'[{"a":1}',
    "not_closed_behind_a_comma": b'[{"a":1},',
    "only_opened": b"[",
    "cut_off_in_a_text": b'[{"a":"x',
    "comma_missing": b'[{"a":1} {"b":2}]',
    "text_behind": b'[{"a":1}] x',
    "two_arrays": b'[{"a":1}][{"b":2}]',
    "value_missing": b'[{"a":1},{"b":]',
    "two_commas": b'[{"a":1},,{"b":2}]',
    "objects_with_a_comma": b'{"a":1},{"b":2}',
    "raw_break_in_a_text": b'[{"a":"x\ny"}]',
    "bad_utf_8": b'[{"a":"\xff"}]',
    "binary": b'[{"a":1}]\0',
    "absurdly_deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", BROKEN_ARRAYS.values(), ids=BROKEN_ARRAYS)
def test_a_damaged_array_is_refused_as_a_whole(folder: Path, content: bytes) -> None:
    """Past the damage nobody knows where an item starts."""
    path = put(folder, "broken.json", content)
    with pytest.raises(ContainerError, match=r"broken\.json"):
        read(path)


def test_an_array_that_ends_in_a_comma_is_refused(folder: Path) -> None:
    """A comma before the closing bracket is not JSON; an item may have been lost there."""
    path = put(folder, "comma.json", b'[{"a":1},]')
    with pytest.raises(ContainerError):
        read(path)


def test_a_damaged_array_names_the_line(folder: Path) -> None:
    """The error says where in the file the damage is."""
    path = put(folder, "line.json", b'[\n{"a": 1},\n{"a": oops}\n]')
    with pytest.raises(ContainerError, match=r"line\.json:3"):
        read(path)


NESTED = [
    {"messages": [{"role": "user", "content": f"é{i}"}], "n": i, "x": i / 3, "none": None}
    for i in range(1000)
]


def test_parquet_has_a_split_per_row_group(folder: Path) -> None:
    """Row groups are the units; rows arrive as the file holds them, numbered over all groups."""
    path = str(folder / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(NESTED), path, row_group_size=300)
    pieces = readers.load("parquet").splits(path)
    assert [(p.start, p.stop, p.piece) for p in pieces] == [(i, i + 1, i) for i in range(4)]
    found = read(path)
    assert [record[3] for record in found] == NESTED
    assert [record[0] for record in found] == list(range(1000))
    assert all(json.loads(raw) == row for _, _, raw, row, _ in found)


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files_and_streams_are_read_alike(folder: Path, kind: str) -> None:
    """Both shapes of Arrow IPC give the rows that were written, over all record batches."""
    table = pa.Table.from_pylist(NESTED)
    path = str(folder / f"{kind}.arrow")
    with pa.OSFile(path, "wb") as sink:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=170)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tables, "BATCH_ROWS", 100)
        found = read(path)
    assert [record[3] for record in found] == NESTED
    assert [record[0] for record in found] == list(range(1000))


def test_values_without_a_json_spelling_still_have_raw_text(folder: Path) -> None:
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


def arrow_bytes(kind: str) -> bytes:
    """A table of numbers and texts, as Arrow IPC or Parquet."""
    table = pa.table({"i": list(range(5000)), "s": [f"{i * 7919 % 9973}" for i in range(5000)]})
    return table_bytes(table, kind, 1000)


@pytest.mark.parametrize("content", [b"", b"hello, this is text\n" * 9], ids=["empty", "text"])
@pytest.mark.parametrize("name", ["other.parquet", "other.arrow"])
def test_a_table_that_is_something_else_is_refused(folder: Path, name: str, content: bytes) -> None:
    """A file that is not what its name says is damaged, and named."""
    path = put(folder, name, content)
    with pytest.raises(ContainerError, match=name):
        read(path)


@pytest.mark.parametrize("kind", ["parquet", "file"])
def test_a_truncated_table_is_refused(folder: Path, kind: str) -> None:
    """A file whose footer is gone is damaged."""
    content = arrow_bytes(kind)
    path = put(folder, f"cut.{'parquet' if kind == 'parquet' else 'arrow'}", content[:-40])
    with pytest.raises(ContainerError, match="cut"):
        read(path)


def test_a_truncated_arrow_stream_is_refused(folder: Path) -> None:
    """A stream that ends inside a record batch is damaged."""
    path = put(folder, "cut.arrow", arrow_bytes("stream")[:-5000])
    with pytest.raises(ContainerError, match="cut"):
        read(path)


def test_a_damaged_page_is_refused(folder: Path) -> None:
    """A Parquet page that cannot be decompressed is damage of the file, not of the machine."""
    content = bytearray(arrow_bytes("parquet"))
    content[3000:3060] = bytes(byte ^ 0xFF for byte in content[3000:3060])
    path = put(folder, "page.parquet", bytes(content))
    with pytest.raises(ContainerError, match="page"):
        read(path)


def written(folder: Path, suffix: str) -> str:
    """An input of each container."""
    if suffix == "parquet":
        return put(folder, "change.parquet", arrow_bytes("parquet"))
    if suffix == "arrow":
        return put(folder, "change.arrow", arrow_bytes("stream"))
    packed = {"jsonl.gz": gzip.compress(LINES), "jsonl.zst": zstandard.compress(LINES)}
    plain = ARRAYS["pretty"](ROWS) if suffix == "json" else LINES
    return put(folder, f"change.{suffix}", packed.get(suffix, plain))


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "json", "arrow", "parquet"])
def test_an_input_that_changed_is_noticed(folder: Path, suffix: str) -> None:
    """Bytes that differ from those that were planned over are never read as if they were them."""
    path = written(folder, suffix)
    reader = readers.load(readers.suffixes()[f".{suffix}"])
    pieces = reader.splits(path)
    before = Path(path).read_bytes()
    at = 60 if suffix == "parquet" else len(before) // 2
    Path(path).write_bytes(flipped(before, at, 1))
    with pytest.raises(SurroundingsError, match="changed"):
        [list(reader.read(piece)) for piece in pieces]


def test_an_input_that_shrank_is_noticed(folder: Path) -> None:
    """A line that went away since planning is a change as well."""
    path = put(folder, "shrank.jsonl", LINES)
    (piece,) = readers.load("jsonl").splits(path)
    Path(path).write_bytes(LINES[: LINES.rindex(b"{")])
    with pytest.raises(SurroundingsError, match="changed"):
        list(readers.load("jsonl").read(piece))


def test_a_line_added_behind_a_split_changes_nothing_in_it(folder: Path) -> None:
    """A split is its own bytes: what was appended later is simply not part of the build."""
    path = put(folder, "grew.jsonl", LINES)
    (piece,) = readers.load("jsonl").splits(path)
    put(folder, "grew.jsonl", LINES + b'{"late": 1}\n')
    rows = [r.data for batch in readers.load("jsonl").read(piece) for r in batch.records]
    assert rows == ROWS


@pytest.mark.parametrize(
    ("name", "suffixes"),
    [
        ("jsonl", (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")),
        ("json", (".json", ".json.gz", ".json.zst")),
        ("parquet", (".parquet",)),
        ("arrow", (".arrow",)),
    ],
)
def test_a_reader_is_found_by_its_key(name: str, suffixes: tuple[str, ...]) -> None:
    """Each reader is found by its own name and by its suffixes."""
    assert readers.load(name).name == name
    assert {suffix: readers.suffixes()[suffix] for suffix in suffixes} == dict.fromkeys(
        suffixes, name
    )


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=80))
@example(content=b"\r\n\r\n")
@example(content=b"\r\r\n{}")
def test_no_bytes_crash_the_line_reader(folder: Path, content: bytes) -> None:
    """Any bytes are rows, refused rows, or a refused file."""
    path = put(folder, "bytes.jsonl", content)
    try:
        found = read(path)
    except ContainerError:
        return
    assert len(found) <= content.count(b"\n") + 1
    assert all((row is None) == (code is not None) for _, _, _, row, code in found)


def test_json_lines_under_the_name_of_json_are_read_as_lines(folder: Path) -> None:
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


def test_a_split_is_named_by_its_reader(folder: Path) -> None:
    """A split says who reads it, so that a worker needs nothing else."""
    put(folder, "named.json", ARRAYS["pretty"](ROWS))
    for suffix in ("jsonl", "json", "arrow", "parquet"):
        path = str(folder / "named.json") if suffix == "json" else written(folder, suffix)
        name = readers.suffixes()[f".{suffix}"]
        pieces: list[Split] = readers.load(name).splits(path)
        assert {piece.reader for piece in pieces} == {name}
        assert {piece.path for piece in pieces} == {path}
