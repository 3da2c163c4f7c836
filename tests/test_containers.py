"""Equal content gives equal examples, whatever it is packed in, or the difference is asked about;
damage is local, or told."""

import contextlib
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import normalizing
from support import ROOT, few, raised, rows_to, started, table, table_bytes

from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from pipeline.tasks import kind_of
from stages import contract, errors, formats, readers
from stages.files import row_counts
from stages.normalize.stage import Normalize
from stages.readers import _values, jsonl
from stages.rows import selection

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where this module's inputs lie."""
    return tmp_path_factory.mktemp("forms")


@pytest.mark.parametrize("kind", few(KINDS, 2))
def test_equal_rows_give_equal_columns_from_every_container(folder, kind):
    """jsonl = json array = gz = zst = parquet = arrow: messages, pairs and steps alike."""
    task, strategy = KINDS[kind]

    @settings(max_examples=8)
    @given(rows=st.lists(strategy, min_size=1, max_size=9))
    def check(rows: Rows) -> None:
        made = {}
        for name, form in FORMS.items():
            path = folder / name
            path.write_bytes(form(rows))
            made[name] = normalizing(task, kind)(records(str(path))[0])
        first = made["rows.jsonl"]
        assert first.num_rows >= len(rows)
        assert all(batch.equals(first) for batch in made.values()), made.keys()

    check()


ROWS = [{"question": f"q{i}", "answer": "a" * (i % 50) + str(i * 7919 % 1000)} for i in range(3000)]
PLAIN = lines(ROWS)


@pytest.mark.parametrize("keep", [0.3, 0.999])
@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_salvage_keeps_what_stands_before_a_cut(folder, suffix, keep):
    """Every row that can be decompressed, the cut one refused by name; refused whole without."""
    packed = gzip.compress(PLAIN) if suffix == "gz" else zstandard.compress(PLAIN)
    cut = packed[: int(len(packed) * keep)]
    path = folder / f"cut.jsonl.{suffix}"
    path.write_bytes(cut)
    raised(errors.ContainerError, records, str(path), says="--salvage")
    found, damage = records(str(path), salvage=True)
    opened: Any = zlib.decompressobj(31) if suffix == "gz" else None
    opened = opened or zstandard.ZstdDecompressor().decompressobj()
    text = opened.decompress(cut)
    whole = text.count(b"\n")
    assert damage is not None
    assert [record.data for record in found[:whole]] == ROWS[:whole]
    assert len(found) == whole + bool(text.rpartition(b"\n")[2])
    assert all(record.error for record in found[whole:] if record.data is None)
    flawed = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    if suffix == "gz":  # noticed at the end: all rows are there, and the file is marked
        path.write_bytes(flawed)
        found, damage = records(str(path), salvage=True)
        assert [record.data for record in found] == ROWS
        assert "incorrect data check" in str(damage)


def test_a_frame_may_refer_back_as_far_as_the_tool_lets_it(folder):
    """``zstd --long=31`` says so in every frame of unknown length, however short its text is."""
    rows = lines(ROWS)
    squeezed = zstandard.ZstdCompressor().compressobj()
    frame = bytearray(squeezed.compress(rows) + squeezed.flush())
    frame[5] = 31 - 10 << 3  # the exponent of what may be referred back to
    assert zstandard.get_frame_parameters(bytes(frame)).window_size == 1 << 31
    path = folder / "far.jsonl.zst"
    path.write_bytes(frame)
    (split,) = readers.load("jsonl").splits(str(path))
    read = [one for lines in readers.load("jsonl").read(split) for one in lines.records]
    assert [one.data for one in read] == ROWS
    counted = row_counts.count(split)
    assert counted.rows == len(ROWS)


@pytest.mark.parametrize("name", ["cut.json", "oops.json", "cut.arrow"])
def test_salvage_keeps_the_items_before_the_damage_of_a_table(folder, name):
    """Arrays and Arrow streams too; the damage is told without the file's name, since equal bytes
    are one part whatever they are called."""
    content = {
        "cut.json": json.dumps(ROWS).encode()[:50_000],
        "oops.json": json.dumps(ROWS).encode().replace(b'"q1000"', b"oops"),
        "cut.arrow": table_bytes(pa.Table.from_pylist(ROWS), "stream", 100)[:-20_000],
    }[name]
    path = folder / name
    path.write_bytes(content)
    raised(errors.ContainerError, records, str(path), says=name)
    found, damage = records(str(path), salvage=True)
    assert damage
    assert name not in damage
    assert 500 < len(found) < 3000
    assert [record.data for record in found] == ROWS[: len(found)]


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
    content = json.dumps(ROWS, ensure_ascii=False).encode()
    at = len(content) // 2
    path = folder / "latin.json"
    path.write_bytes(content[:at] + b"\xe9" + content[at:])
    for window in (7, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_values, "WINDOW", window)
            raised(errors.ContainerError, records, str(path), says=f"byte {at} is 0xe9")


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
    path = folder / "bytes.arrow"
    path.write_bytes(table_bytes(pa.table({"q": column}), "file", 9))
    found, _ = records(str(path))
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
