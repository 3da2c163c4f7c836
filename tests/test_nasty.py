"""No input, however broken, is lost silently, hangs, or ends in a traceback; what the strict JSON
door accepts is unambiguous and arrives exactly as written."""

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from nasty import CASES, reference, same
from support import read_manifest, read_rows, records_of, table, table_bytes

from stages import contract, errors, readers
from stages.files.line_block import MAX_DEPTH, dump, parse
from stages.readers import arrow

GOOD = b'{"question": "q", "answer": "a"}'
LINES = {name: raw for name, raw in CASES.items() if b"\n" not in raw}
PACK: dict[str, Callable[[bytes], bytes]] = {
    "jsonl": bytes,
    "jsonl.gz": gzip.compress,
    "jsonl.zst": zstandard.compress,
    "json": bytes,
    "json.zst": zstandard.compress,
    "parquet": bytes,
    "arrow": bytes,
}


def records(path: Path) -> list[contract.Record]:
    """Every record of a file."""
    name = readers.of_path(path.name)
    assert name is not None
    return records_of(*readers.load(name).splits(str(path)))


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_each_line_has_the_verdict_of_the_standard_library(tmp_path, suffix):
    """Among good rows, every nasty one is read exactly or refused, alone, at its own offset."""
    lines = [part for raw in LINES.values() for part in (GOOD, raw)] + [GOOD]
    content = b"\n".join(lines) + b"\n"
    path = tmp_path / f"nasty.{suffix}"
    path.write_bytes(PACK[suffix](content))
    found = {record.line: record for record in records(path)}
    wanted = {number: line for number, line in enumerate(lines) if line.strip()}
    assert found.keys() == wanted.keys()
    for number, line in wanted.items():
        record, row = found[number], reference(line.removesuffix(b"\r"))
        assert (record.data is None) == (row is None), line[:80]
        assert (record.error is None) == (row is not None), line[:80]
        assert row is None or same(record.data, row), line[:80]
        assert content[record.offset :].startswith(record.raw), line[:80]


def test_each_item_of_an_array_is_read_or_the_array_is_refused(tmp_path):
    """An item that is JSON costs at most itself; text that is none refuses the whole array."""
    path = tmp_path / "nasty.json"
    for raw in CASES.values():
        content = b"[" + GOOD + b",\n" + raw + b",\n" + GOOD + b"]"
        path.write_bytes(content)
        try:
            items = json.loads(content.decode("utf-8"), parse_int=str)
        except (ValueError, RecursionError):
            items = None
        try:
            found = records(path)
        except errors.PipelineError:
            assert items is None, raw[:80]
            continue
        assert items is not None, raw[:80]
        assert len(found) == len(items), raw[:80]
        if len(found) == 3:
            row = reference(raw)
            assert (found[1].data is None) == (row is None), raw[:80]
            assert row is None or same(found[1].data, row), raw[:80]


def _count(content: bytes, as_lines: bool) -> int:
    """Rows of a file of JSON, counted another way: items of an array, values, or filled lines."""
    data = content.removeprefix(b"\xef\xbb\xbf")
    filled = sum(bool(line.strip()) for line in data.split(b"\n"))
    try:
        text = data.decode("utf-8").strip()
        if text.startswith("["):
            return len(json.loads(text, parse_int=str))
        values = 0
        while text and not as_lines:
            text = text[json.JSONDecoder(parse_int=str).raw_decode(text)[1] :].lstrip()
            values += 1
    except (ValueError, RecursionError):
        return filled
    return filled if as_lines else values


def _outcome(path: Path) -> tuple[list[contract.Record], errors.PipelineError | None]:
    """The records of a file, or why there are none."""
    try:
        return records(path), None
    except errors.PipelineError as error:
        return [], error


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow"])
def test_no_file_ends_in_a_traceback(tmp_path, suffix):
    """Each case as a whole file of each container: rows, refused rows, or one clear refusal."""
    path = tmp_path / f"whole.{suffix}"
    for name, raw in CASES.items():
        path.write_bytes(PACK[suffix](raw))
        found, refusal = _outcome(path)
        if refusal is not None:
            told = bool(refusal.what and refusal.remedy and path.name in refusal.what)
            assert told, name
            opens_array = raw.removeprefix(b"\xef\xbb\xbf").startswith(b"[")
            assert suffix != "jsonl" or b"\0" in raw or opens_array, name
            continue
        assert all((r.data is None) == (r.error is not None) for r in found), name
        assert len(found) == _count(raw, suffix == "jsonl"), name


TEXTS = [row["s"] for raw in CASES.values() if (row := reference(raw)) and "s" in row]


@pytest.mark.parametrize("container", ["parquet", "arrow", "hf"])
def test_texts_arrive_from_tables_as_they_are(tmp_path, container):
    """Whatever a text column can hold comes out of it."""
    assert len(TEXTS) > 30
    rows = [{"n": n, "s": text} for n, text in enumerate(TEXTS)]
    table = pa.Table.from_pylist(rows)
    path = tmp_path / f"t.{container}"
    if container != "hf":
        kind = "parquet" if container == "parquet" else "file"
        path.write_bytes(table_bytes(table, kind, 7))
    else:
        datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
        (shard,) = arrow.files(str(tmp_path / "saved")) or []
        path = Path(shard)
    assert [record.data for record in records(path)] == rows


def test_a_build_of_all_of_them_accounts_for_every_row(pipeline, tmp_path):
    """rows.in is the independent count; every refused row is in rejects.jsonl with its bytes."""
    lines = [part for raw in LINES.values() for part in (GOOD, raw)]
    content = b"\n".join(lines)
    (tmp_path / "nasty.jsonl").write_bytes(content)
    options = ("--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")
    ran = pipeline("run", "sft", "nasty.jsonl", *options).ended()
    assert "Traceback" not in ran.err
    rows = read_manifest(tmp_path / "out")["rows"]
    filled = [line for line in content.split(b"\n") if line.strip()]
    assert rows["in"] == len(filled)
    assert rows["used"] == filled.count(GOOD)
    rejects = read_rows(tmp_path / "out" / "rejects.jsonl")
    assert len(rejects) == len(filled) - filled.count(GOOD)
    refused = [r for r in rejects if r["code"] not in ("malformed_row", "empty_turn")]
    for reject in rejects:
        raw = reject["raw"].encode("utf-8")
        if b"\\x" not in raw:  # bytes that are not UTF-8 are spelled out there
            assert content[reject["offset"] :].startswith(raw)
    broken = sum(reference(line.removesuffix(b"\r")) is None for line in filled)
    codes = {"bad_json", "bad_encoding", "duplicate_key", "integer_range", "json_too_deep"}
    assert sum(r["code"] in codes | {"not_an_object"} for r in refused) == broken


# What is refused, with its code and what the detail names.
REFUSED = [(raw.encode("latin-1"), *told) for raw, *told in table("refused_lines.jsonl")]


def refusal(raw: bytes) -> tuple[str, str]:
    """The code that a line is refused with, and the detail; empty where it is read."""
    try:
        parse(raw)
    except errors.RowError as error:
        return error.code, error.detail
    return "", ""


def test_each_kind_of_fault_has_its_code():
    """And the detail names what was found."""
    for raw, code, words in REFUSED:
        found, detail = refusal(raw)
        assert found == code, raw
        assert words in detail, raw
    order = {"z": 1, "a": {"y": "é", "b": None}}
    assert dump(order) == '{"z":1,"a":{"y":"é","b":null}}'  # of keys, as they were written


@pytest.mark.parametrize(("opens", "closes"), [('{"a":', "}"), ("[", "]")], ids=["dict", "list"])
def test_nesting_is_accepted_to_the_limit_and_not_beyond(opens, closes):
    """64 levels are read; 65 are refused, by that name; a line of brackets is a bad row, and does
    not end the process."""

    def nested(depth: int) -> bytes:
        return ('{"x":' + opens * (depth - 1) + "0" + closes * (depth - 1) + "}").encode()

    assert same(parse(nested(MAX_DEPTH)), json.loads(nested(MAX_DEPTH)))
    for depth in (MAX_DEPTH + 1, 1000):
        assert refusal(nested(depth))[0] == "json_too_deep"
    assert refusal(nested(100_000))[0] in ("json_too_deep", "bad_json")


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['":', '"a":', "\\", '\\"', ": ", "\t:", '" :', "{", "}", "\u2028", "\ue000"]
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FINITE, TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ROWS = st.dictionaries(TEXT, VALUES, max_size=5)
SEPARATORS = st.sampled_from(
    [(",", ":"), (", ", ": "), (" ,\t", " :"), (",\r\n", "\t: "), (",", " :")]
)


@given(row=ROWS, ascii_only=st.booleans(), separators=SEPARATORS)
def test_any_object_round_trips_like_the_standard_parser(row, ascii_only, separators):
    """However an object is spelled, what arrives is exactly what ``json.loads`` reads."""
    raw = json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode()
    assert same(parse(raw), json.loads(raw))
    assert same(parse(raw), row)


class Doubled(dict[str, Any]):
    """An object that is written with its first key twice."""

    def __init__(self, pairs: Any) -> None:
        super().__init__(pairs or {"k": None})

    def items(self) -> Any:
        """As the encoder asks for them."""
        return [*super().items(), (next(iter(self)), None)]


@given(row=ROWS, separators=SEPARATORS, data=st.data())
def test_a_duplicate_key_anywhere_is_always_refused(row, separators, data):
    """Whatever else a row holds, a key that stands twice in one of its objects refuses it."""
    numbers, text = itertools.count(), json.dumps(row)
    json.loads(text, object_hook=lambda _: next(numbers))
    which, numbers = data.draw(st.integers(0, next(numbers) - 1)), itertools.count()
    doubled = json.loads(
        text, object_pairs_hook=lambda pairs: (Doubled if next(numbers) == which else dict)(pairs)
    )
    raw = json.dumps(doubled, separators=separators).encode()
    assert refusal(raw)[0] == "duplicate_key", raw


@given(row=ROWS, number=st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63) - 1))
def test_an_integer_beyond_64_bits_is_always_refused(row, number):
    """No integer is silently turned into a float, wherever it stands."""
    raw = json.dumps({**row, "deep": [{"number": number}]}).encode()
    assert refusal(raw)[0] == "integer_range"
