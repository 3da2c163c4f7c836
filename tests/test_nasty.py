"""No input, however broken, is lost silently, hangs, or ends in a traceback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
import zstandard
from nasty import CASES, reference, same
from support import Run, read_manifest, read_rows, table_bytes

from stages import readers
from stages.contract import Record
from stages.errors import PipelineError
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


def records(path: Path) -> Iterator[Record]:
    """Every record of a file."""
    name = readers.of_path(path.name)
    assert name is not None
    for split in readers.load(name).splits(str(path)):
        for lines in readers.load(split.reader).read(split):
            yield from lines.records


def test_the_corpus_is_wide() -> None:
    """At least 300 different inputs, of which both many are good and many are broken."""
    assert len(set(CASES.values())) >= 300
    good = sum(reference(raw) is not None for raw in CASES.values())
    assert 60 <= good <= len(CASES) - 150


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_each_line_has_the_verdict_of_the_standard_library(tmp_path: Path, suffix: str) -> None:
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
        assert record.offset is not None
        assert content[record.offset :].startswith(record.raw), line[:80]


def test_each_item_of_an_array_is_read_or_the_array_is_refused(tmp_path: Path) -> None:
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
            found = list(records(path))
        except PipelineError:
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


def _outcome(path: Path) -> tuple[list[Record], PipelineError | None]:
    """The records of a file, or why there are none."""
    try:
        return list(records(path)), None
    except PipelineError as error:
        return [], error


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "arrow"])
def test_no_file_ends_in_a_traceback(tmp_path: Path, suffix: str) -> None:
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
def test_texts_arrive_from_tables_as_they_are(tmp_path: Path, container: str) -> None:
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


def test_a_build_of_all_of_them_accounts_for_every_row(pipeline: Run, tmp_path: Path) -> None:
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
