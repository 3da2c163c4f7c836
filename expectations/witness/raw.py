"""The rows of a file by their numbers, read with the plainest means there are."""

import base64
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

Row = dict[str, Any]
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}
_BLOCK = 1 << 22
_ARRAY = 64 << 20  # bytes of an array that is read at once
_TABLES = ("csv", "tsv")
_OF_TOOLS = ("tools", "functions", "tool_calls", "function_call")
_BLANK = re.compile(r"\s*")


class UnreadError(Exception):
    """Why something is not read by the witness."""


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with Path(path).open("rb") as file:
        kind = _MAGIC.get(file.read(2), Path(path).suffix)
        file.seek(0)
        if kind == ".gz":
            try:
                with gzip.open(file) as text:
                    yield cast(BinaryIO, text)
            except (EOFError, OSError, zlib.error) as error:
                raise UnreadError("a damaged file") from error
        elif kind == ".zst":
            import zstandard

            try:
                yield zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            except zstandard.ZstdError as error:
                raise UnreadError("a damaged file") from error
        else:
            yield file


def rows(path: str, lines: Collection[int], words: dict[str, Any]) -> dict[int, Row]:
    """Rows of a file.

    Args:
        lines: their numbers, from 1; blank lines count.
        words: what is said of the file: ``container``, ``delimiter``, ``quoting``, ``cells``.

    Returns:
        By number; those that are no JSON objects are missing.

    Raises:
        UnreadError: the file is none of those that are read here.
    """
    kind = words["container"].partition("/")[0]
    if kind == "parquet":
        return _of_table(_parquet(path), lines, words)
    if kind in ("arrow", "hf"):  # one of the files of a saved dataset
        return _of_table(_arrow(path), lines, words)
    if kind not in ("jsonl", "json", *_TABLES):
        raise UnreadError(f"files that {kind} reads")
    with _opened(path) as file:
        if kind in _TABLES:
            return _of_texts(file, lines, words, kind)
        begins = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    with _opened(path) as file:  # a list is one, whatever the file is called
        array = _array(file) if kind == "json" or begins == b"[" else None
    if array is not None:
        return {
            n: array[n - 1] for n in lines if n <= len(array) and isinstance(array[n - 1], dict)
        }
    with _opened(path) as file:
        found = {n: _parsed(line) for n, line in _lines(file, sorted(lines))}
    return {n: row for n, row in found.items() if isinstance(row, dict)}


def _parsed(line: bytes) -> Any:
    """A value of JSON; None where it is none: not in UTF-8, with a key twice, or no number."""
    try:
        return _value(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def _value(text: str) -> Any:
    return json.loads(text or "null", object_pairs_hook=_once, parse_constant=_no_number)


def are_plain(row: Row, container: str) -> bool:
    """Whether nothing in the cells of a row of texts is spelled so that readers of JSON differ."""
    try:
        told = json.dumps(row, ensure_ascii=False, allow_nan=False)
        return (
            container.partition("/")[0] in _TABLES and "\ufeff" not in told and bool(told.encode())
        )
    except (TypeError, ValueError):
        return False


def _once(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _no_number(spelled: str) -> None:
    raise ValueError(f"{spelled} is no value of JSON")


def _lines(file: BinaryIO, wanted: list[int]) -> Iterator[tuple[int, bytes]]:
    """The bytes of some lines; those between them are only counted."""
    number, waiting, rest = 0, iter(wanted), b""  # lines before ``rest``
    want = next(waiting, None)
    while want is not None and (block := file.read(_BLOCK)):
        block = rest + block
        start, ends = 0, block.count(b"\n")
        while want is not None and want <= number + ends:
            for _ in range(want - number - 1):
                start = block.index(b"\n", start) + 1
            stop = block.index(b"\n", start) + 1
            yield want, block[start:stop]
            start, ends, number = stop, ends - (want - number), want
            want = next(waiting, None)
        last = block.rindex(b"\n") + 1 if b"\n" in block else 0
        number, rest = number + ends, block[last:]
    if want == number + 1 and rest:
        yield want, rest


def _array(file: BinaryIO) -> list[Any] | None:
    """The rows of a file that is one value; None where each line is one."""
    head = file.read(_BLOCK)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start not in (b"[", b"{"):
        return None
    if start == b"{" and _parsed(head.split(b"\n", 1)[0]) is not None and head.strip().count(b"\n"):
        return None  # an object a line
    data = head + file.read(_ARRAY)
    if len(data) >= _ARRAY:
        raise UnreadError("a file of one value that is larger than 64 MB")
    found, text, at = [], data.decode("utf-8-sig", "replace"), 0
    while (blank := _BLANK.match(text, at)) and blank.end() < len(text):
        try:
            value, at = json.JSONDecoder().raw_decode(text, blank.end())
        except (ValueError, RecursionError) as error:
            raise UnreadError("a JSON file of another shape") from error
        found.append(value)
    if len(found) > 1:
        return found  # one value after the other
    (value,) = found
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    if not isinstance(value, list):
        raise UnreadError("a JSON file of another shape")
    return value


def _of_texts(file: BinaryIO, lines: Collection[int], words: Row, kind: str) -> dict[int, Row]:
    listed = [name for name, kind in (words.get("cells") or {}).items() if kind == "json"]
    comma = words.get("delimiter") or ("\t" if kind == "tsv" else ",")
    none: Literal[0, 3] = csv.QUOTE_NONE if words.get("quoting") == "none" else csv.QUOTE_MINIMAL
    csv.field_size_limit(1 << 27)
    text = io.StringIO(file.read().decode("utf-8-sig"), newline="")
    table = csv.reader(text, delimiter=comma, quoting=none)
    header, found, before = next(table, []), {}, table.line_num
    for cells in table:
        if before + 1 in lines and cells:
            row: Row = {k: x or None for k, x in zip(header, cells, strict=False)}
            with suppress(ValueError, RecursionError):
                found[before + 1] = row | {
                    k: _value((row[k] or "").strip(" \t\r\n")) for k in listed
                }
        before = table.line_num
    return found


def _parquet(path: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    yield from pq.ParquetFile(path).iter_batches()


def _arrow(path: str) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(path) as source:
        try:
            yield from pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            file = pa.ipc.open_file(source)
            yield from map(file.get_batch, range(file.num_record_batches))


def _of_table(batches: Iterator[Any], lines: Collection[int], words: Row) -> dict[int, Row]:
    """Rows of a typed table, in which a null is what is not there; in tools, it may be data."""
    kept = _OF_TOOLS if words.get("null_fields") == "keep" else ()
    found: dict[int, Row] = {}
    before = 0
    for batch in batches:
        here = sorted(n for n in lines if before < n <= before + batch.num_rows)
        some = batch.take([n - before - 1 for n in here]).to_struct_array() if here else ()
        some = [_plain(one.as_py(), one.type) for one in some]
        found |= {n: _without_nulls(row, kept) for n, row in zip(here, some, strict=True)}
        before += batch.num_rows
    return found


def _plain(value: Any, kind: Any) -> Any:
    """A value as JSON has it: of bytes their base64, and the text of what it has no type for."""
    if isinstance(value, dict):
        return {one.name: _plain(value[one.name], one.type) for one in kind}
    if isinstance(value, list) and str(kind).startswith("map<"):
        raise UnreadError("a table with maps")
    if isinstance(value, list):
        return [_plain(one, kind.value_type) for one in value]
    if str(kind).startswith("extension<arrow.json") and value is not None:
        return json.loads(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str | int | float | None) else str(value)


def _without_nulls(value: Any, kept: Collection[str]) -> Any:
    """A value without nulls, but under some keys."""
    if isinstance(value, dict):
        there = {key: one for key, one in value.items() if one is not None}
        return {k: x if k in kept else _without_nulls(x, kept) for k, x in there.items()}
    return [_without_nulls(one, kept) for one in value] if isinstance(value, list) else value
