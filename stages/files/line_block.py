"""Lines of JSON as records, and the strict parsing of one object."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

import orjson

from stages import contract, late
from stages.errors import RowError


def record(line: int, offset: int, raw: bytes, longest: int) -> contract.Record:
    """The record of one line, without its end."""
    if len(raw) > longest:
        return too_long(line, offset, raw, longest=longest, length=len(raw))
    try:
        return contract.Record(line, offset, raw, parse(raw))
    except RowError as error:
        return contract.Record(line, offset, raw, data=None, error=(error.code, error.detail))


def too_long(line: int, offset: int, raw: bytes, longest: int, length: int) -> contract.Record:
    """The record of a line with too many bytes, of which only the first are kept."""
    detail = f"{length} bytes in one line; the limit is {longest}"
    return contract.Record(line, offset, raw[:4096], data=None, error=("line_too_long", detail))


def records(lines: Sequence[bytes], first: int, offset: int, longest: int) -> list[contract.Record]:
    """The rows of some lines, without their ends. Blank lines are no rows.

    Args:
        first: number of the first line; ``offset``: of its first byte.
        longest: bytes of a line that is read.
    """
    joined, found = b"\n".join(lines), []
    plain = b"\r" not in joined and max(map(len, lines)) <= longest
    rows = parse_all(lines, joined) if plain else None
    for number, raw in enumerate(lines, first):
        if rows is not None:
            found.append(contract.Record(number, offset, raw, rows[number - first]))
        elif (body := raw.removesuffix(b"\r")).strip():
            found.append(record(number, offset, body, longest))
        offset += len(raw) + 1
    return found


# Strict parsing of one JSON object: ambiguous text is refused, and no value is changed.
#
# orjson does the parsing. It refuses bad grammar, bad UTF-8, NaN and lone surrogates. What it
# accepts silently (duplicate keys, integers beyond 64 bits as floats, deep nesting) is caught here:
# cheaply for ordinary rows, by a slow second parse for suspicious ones.


MAX_DEPTH = 64
_FLAT = frozenset((str, bool, type(None)))
_NUMBERS = frozenset((int, float))
_MANY_BYTES = 1 << 16
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')


def _unique(pairs: list[tuple[str, Any]]) -> contract.Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RowError("duplicate_key", f"key {twice!r} is given twice in one object")
    return row


def _int64(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise RowError("integer_range", f"integer {text[:40]} does not fit 64 bits")
    return int(text)


def _wrap(value: Any) -> str:
    """A hint for a bare list of turns; empty for any other value."""
    first = value[0] if isinstance(value, list) and value else None
    if not isinstance(first, dict) or not first.keys() & {"role", "from"}:
        return ""
    return '; a list of turns is a row as {"messages": [...]}'


def require_utf8(raw: bytes) -> None:
    """Check the encoding of a row.

    Raises:
        RowError: it is another one.
    """
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8"
        raise RowError("bad_encoding", detail) from error


def parse(raw: bytes) -> contract.Row:
    """Parse one object.

    Raises:
        RowError: it is not one object, or is ambiguous.
    """
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        require_utf8(raw)
        raise RowError("bad_json", f"not JSON: {_no_number(raw) or error}") from error
    if type(row) is not dict:
        raise RowError("not_an_object", f"a JSON {type(row).__name__}, not an object{_wrap(row)}")
    below = _keys_inside(list(row.values()))
    if below is None or not _all_keys_once(raw, below + len(row)):
        json.loads(raw, object_pairs_hook=_unique, parse_int=_int64)
    return row


def _no_number(raw: bytes) -> str:
    """The NaN or Infinity that Python writes as a number; empty where the row holds none."""
    found: list[str] = []
    with suppress(ValueError, RecursionError):
        json.loads(raw, parse_constant=found.append)
    return f"{found[0]} is no number of JSON; null says that there is none" if found else ""


def _all_keys_once(raw: bytes, keys: int) -> bool:
    """Whether the bytes of one or more objects surely spell no key twice in one object.

    Args:
        keys: of all the objects, and of those inside them, as they were parsed.
    """
    # Every key ends in '":', so the bytes have one of these for each key that they spell. Others
    # are inside texts: an escaped quote before a colon, which is not counted, or a text that begins
    # with a colon. As many as there are parsed keys means that none was spelled twice. Blanks may
    # also be between a key and its colon; of these, only spaces are allowed in a text.
    if len(raw) < _MANY_BYTES:
        blanks = b'" ' in raw or b"\t" in raw or b"\r" in raw or b'"\n' in raw
        if blanks and _SPACED_COLON.search(raw) is not None:
            return False
        ends = raw.count(b'":')
        if ends != keys and rb'\\":' not in raw:  # there the quote would not be the escaped one
            ends -= raw.count(rb"\":")
        return ends == keys
    # The same of many bytes, by what stands before each colon.
    content = late.np.frombuffer(raw, late.np.uint8)
    colons = late.np.flatnonzero(content == ord(":"))
    colons = colons[colons > 2]  # an object's first key ends no earlier
    before = content[colons - 1]
    if (before <= ord(" ")).any() and _SPACED_COLON.search(raw) is not None:
        return False
    quotes = colons[before == ord('"')]
    if len(quotes) == keys:
        return True
    escaped = quotes[content[quotes - 2] == ord("\\")]
    return len(quotes) - len(escaped) == keys and not (content[escaped - 3] == ord("\\")).any()


def _keys_inside(values: list[Any]) -> int | None:
    """Keys of the objects inside the values of rows; None where a number may have been a big
    integer.

    Raises:
        RowError: something is nested too deep.
    """
    keys, big = 0, False
    for depth in count(2):  # all values of one depth at a time
        kinds = set(map(type, values))
        if kinds <= _FLAT:
            break
        big = big or (
            not _NUMBERS.isdisjoint(kinds)
            and any(type(value) in _NUMBERS and abs(value) >= 2.0**63 for value in values)
        )
        dicts = values if kinds == {dict} else [value for value in values if type(value) is dict]
        lists = values if kinds == {list} else [value for value in values if type(value) is list]
        if depth > MAX_DEPTH and (dicts or lists):
            raise RowError("json_too_deep", f"nested more than {MAX_DEPTH} levels deep")
        keys += sum(map(len, dicts))
        values = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
    return None if big else keys


def parse_all(lines: Sequence[bytes], joined: bytes) -> list[contract.Row] | None:
    """Parse many lines at once; None where some line needs to be parsed by itself (``parse``).

    Args:
        joined: the bytes of all lines, in order.
    """
    try:
        rows = list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return None
    if {*map(type, rows)} != {dict}:
        return None
    try:
        below = _keys_inside(list(chain.from_iterable(map(dict.values, rows))))
    except RowError:
        return None
    if below is None or not _all_keys_once(joined, below + sum(map(len, rows))):
        return None
    return rows


def dump(value: Any) -> str:
    """Compact JSON with keys in the order they were written."""
    return orjson.dumps(value).decode()
