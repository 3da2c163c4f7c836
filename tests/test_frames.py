"""Files are cut into pieces, which have the rows of the whole file: at lines, and at frames of
compressed ones."""

import gzip
import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import few, raised, read_manifest

from stages import contract, errors, readers
from stages.files import content, file_version, row_counts
from stages.files.file_version import FilePiece, FileVersion, look
from stages.readers import jsonl

SAME = settings(max_examples=40)


def block_gzip(text: bytes, size: int) -> bytes:
    """Blocks as bgzip writes them, and the empty one at the end."""
    written = b""
    for at in [*range(0, len(text), size), len(text)]:
        block = text[at : at + size]
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = deflate.compress(block) + deflate.flush()
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", len(packed) + 25)
        written += head + packed + struct.pack("<II", zlib.crc32(block), len(block))
    return written


def _frames(text: bytes, size: int) -> list[bytes]:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    return [packer.compress(text[at : at + size]) for at in range(0, len(text), size)]


def frames(text: bytes, size: int) -> bytes:
    """zstandard frames that say their size, with frames between them that are skipped."""
    skipped = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    return skipped.join([b"", *_frames(text, size), b""])


def seekable(text: bytes, size: int) -> bytes:
    """Frames and a table of their sizes, as the seekable format has it."""
    each = _frames(text, size)
    sizes = [(len(one), len(text[at * size : (at + 1) * size])) for at, one in enumerate(each)]
    table = b"".join(struct.pack("<II", *one) for one in sizes)
    table += struct.pack("<IBI", len(each), 0, 0x8F92EAB1)
    return b"".join(each) + struct.pack("<II", 0x184D2A5E, len(table)) + table


WRITERS: dict[str, tuple[str, Callable[[bytes, int], bytes]]] = {
    "block gzip": ("gz", block_gzip),
    "frames": ("zst", frames),
    "seekable": ("zst", seekable),
}
ALL_WRITERS = {
    **WRITERS,
    "lines": ("", lambda text, size: text),
    "gzip": ("gz", lambda text, size: gzip.compress(text)),
    "zstandard": ("zst", lambda text, size: zstandard.compress(text)),
}


@dataclass(frozen=True)
class _Stored:
    """A version in a store, in memory."""

    content: bytes

    @property
    def key(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def read(self, start: int, stop: int) -> bytes:
        return self.content[start:stop]

    look = read

    def noted(self, what: str, find: Callable[[], list[int]]) -> list[int]:
        return find()


def elsewhere(name: str, content: bytes) -> FileVersion:
    """A version that lies in a store."""
    whole = (FilePiece(0, len(content)),)
    return FileVersion(name, len(content), head=content[:8], pieces=whole, stored=_Stored(content))


def rows_of(splits: list[contract.Split]) -> list[tuple[int, int, bytes, Any]]:
    """Line and offset in the text of the file, bytes and content of each row."""
    rows, line = [], 0
    for split in splits:
        found = list(readers.load(split.reader).read(split))
        lines = sum(part.lines for part in found)
        records = [record for part in found for record in part.records]
        rows += [(line + r.line, split.start + (r.offset or 0), r.raw, r.data) for r in records]
        last = max((record.line for record in records), default=-1)
        assert row_counts.count(split) == row_counts.Count(len(records), lines, last)
        line += lines
    return rows


def cut(version: FileVersion, least: int, looked: int = 1 << 14) -> list[contract.Split]:
    """The pieces of a version, which cover it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "SPLIT_BYTES", least)
        patch.setattr(jsonl, "_LOOK", looked)
        splits = jsonl.READER.line_splits(version)
    row_counts.require_covered(version.path, splits)
    return splits


def test_what_is_too_large_for_memory_is_copied_for_as_long_as_it_is_read(tmp_path, monkeypatch):
    """And what is read of the copy is compared."""
    monkeypatch.setattr(file_version, "HELD", 100)
    monkeypatch.setattr(file_version, "PIECE", 64)
    packed = json.dumps(ROWS[:30]).encode()
    (split,) = readers.load("json").cut(elsewhere("far/rows.json", packed))  # type: ignore[attr-defined]
    with content.held(split, tmp_path / "copies") as known:
        assert rows_of([known]) == rows_of([split])
        assert known.sha256 == hashlib.sha256(packed).hexdigest()
        (copy,) = (tmp_path / "copies").iterdir()
        copy.write_bytes(packed[:-9] + b'"changed"]')
        raised(errors.SurroundingsError, rows_of, [replace(known)], says="changed while")
    assert not list((tmp_path / "copies").iterdir())


_FILLED = ('{"a": 1}', '{"b": "' + "x" * 40 + '"}', '{"c": "é"}', '{"a": "\\n"}', "{}", "not json")
LINES = st.lists(st.sampled_from(["", " ", "\t", *_FILLED]), max_size=12)


@SAME
@given(
    writer=st.sampled_from(sorted(ALL_WRITERS)),
    lines=LINES,
    end=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
    bom=st.booleans(),
    size=st.integers(1, 90),
    least=st.integers(1, 200),
    looked=st.integers(1, 9),
    far=st.booleans(),
)
def test_pieces_have_the_rows_of_the_whole(
    tmp_path, writer, lines, end, closed, bom, size, least, looked, far
):
    """Wherever frames and lines end, and however little is looked at there: numbers, offsets in the
    text, bytes and counts; the cuts between lines are the documented ones."""
    text = ("\ufeff" * bom + end.join(['{"first": 0}', *lines]) + end * closed).encode()
    suffix, write = ALL_WRITERS[writer]
    path = tmp_path / f"rows.jsonl.{suffix}".rstrip(".")
    path.write_bytes(write(text, size))
    version = elsewhere(path.name, path.read_bytes()) if far else look(str(path))
    splits = cut(version, least, looked)
    whole = [content.whole(look(str(path)), "jsonl")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "CHUNK", looked + 2)
        assert rows_of(splits) == rows_of(whole)
    if writer == "lines":
        documented, at = [], 0
        while at < len(text):
            found = text.find(b"\n", at + least)
            at, start = (len(text) if found < 0 else found + 1), at
            documented.append((start, at))
        assert [(split.start, split.stop) for split in splits] == documented
    elif far and writer != "seekable":
        assert [split.around for split in splits] == [None]
    for split in splits:
        with content.held(split, tmp_path) as known:
            own = path.read_bytes()[known.version.start : known.version.stop]
            assert known.sha256 == hashlib.sha256(own).hexdigest()
            assert rows_of([known]) == rows_of([split])


TEXT = b"".join(b'{"a": "%d", "b": "%s"}\n' % (n, b"x" * (n * 37 % 50)) for n in range(60))


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_frames_are_cut_where_they_say_their_sizes(tmp_path, writer):
    """Other files are one piece."""
    suffix, write = WRITERS[writer]
    path = tmp_path / f"rows.jsonl.{suffix}"
    path.write_bytes(write(TEXT, 100))
    assert len(cut(look(str(path)), 300)) > 4
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(TEXT) + stream.flush()
    members = gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])
    ordinary = {
        "gz": [members, gzip.compress(TEXT)],
        "zst": [zstandard.compress(TEXT), unsized * 2],
    }
    for packed in ordinary[suffix]:
        path.write_bytes(packed)
        assert [split.around for split in cut(look(str(path)), 100)] == [None]


@SAME
@given(
    writer=st.sampled_from(sorted(WRITERS)),
    place=st.floats(0, 1, exclude_max=True),
    change=st.integers(0, 255),
)
@example(writer="seekable", place=0.999, change=0)
def test_damage_is_never_read_as_something_else(tmp_path, writer, place, change):
    """Cut off (0) or with another byte: what cannot be read whole cannot be read in pieces, and
    what can has its rows, or is refused."""
    suffix, write = WRITERS[writer]
    packed = bytearray(write(TEXT, 100))
    at = int(place * len(packed))
    if change:
        packed[at] ^= change
    else:
        del packed[at:]
    path = tmp_path / f"rows.jsonl.{suffix}"
    path.write_bytes(packed)

    def read(splits: Callable[[], list[contract.Split]]) -> list[Any] | None:
        try:
            return rows_of(splits())
        except errors.ContainerError:
            return None

    whole = read(lambda: [content.whole(look(str(path)), "jsonl")])
    pieces = read(lambda: cut(look(str(path)), 300))
    assert pieces in (whole, None)


def test_a_table_with_other_sizes_is_noticed(tmp_path):
    """Two frames that share their text in another way than the table says."""
    packed = bytearray(seekable(TEXT, 100))
    table = len(packed) - 9 - 8 * -(-len(TEXT) // 100)
    for entry, size in ((10, 90), (11, 110)):
        struct.pack_into("<I", packed, table + 8 * entry + 4, size)
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(packed)
    splits = cut(look(str(path)), 100)
    assert len(splits) > 5
    raised(errors.ContainerError, rows_of, splits, says="text than it should")
    assert rows_of([content.whole(look(str(path)), "jsonl")])


ROWS = [{"question": f"What is {n}?", "answer": f"It is {n}. " * 9} for n in range(200)]
QUESTIONS = b"".join(
    b"not json\n" if n % 100 == 50 else json.dumps(row).encode() + b"\n"
    for n, row in enumerate(ROWS)
)


@pytest.mark.parametrize("writer", few(WRITERS, 1))
def test_builds_are_those_of_one_piece(make, tmp_path, monkeypatch, writer):
    """Shards and refused rows; ``--salvage`` cuts nothing."""
    suffix, write = WRITERS[writer]
    data = tmp_path / f"rows.jsonl.{suffix}"
    data.write_bytes(write(QUESTIONS, 2000))
    whole = read_manifest(make("sft", data, "whole", salvage=True))
    rejects = (tmp_path / "whole" / "rejects.jsonl").read_bytes()
    (first, *_) = map(json.loads, rejects.splitlines())
    assert (first["id"], first["offset"]) == (f"{data.name}:51", QUESTIONS.index(b"not json"))
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 4000)
    found = read_manifest(make("sft", data, "pieces"))
    assert found["inputs"][0]["pieces"] > 4
    assert found["splits"] == whole["splits"]
    assert (tmp_path / "pieces" / "rejects.jsonl").read_bytes() == rejects
