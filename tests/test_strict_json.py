"""The strict JSON door: what is accepted is unambiguous and arrives exactly as written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty import CASES, reference, same

from stages.errors import RowError
from stages.files.strict_json import MAX_DEPTH, dump, parse

# What is refused, with its code and what the detail names.
REFUSED: list[tuple[bytes, str, str]] = [
    (b'{"a":1,"a":1}', "duplicate_key", "'a'"),
    (rb'{"a":1,"\u0061":2}', "duplicate_key", "'a'"),
    (b'{"":1,"":2}', "duplicate_key", "''"),
    (b'{"a":{"b":1,"b":2},"a":3}', "duplicate_key", ""),
    (b'{"a":9223372036854775808}', "integer_range", "9223372036854775808"),
    (b'{"a":-9223372036854775809}', "integer_range", "-9223372036854775809"),
    (b'{"a":[18446744073709551616]}', "integer_range", "18446744073709551616"),
    (b'{"a":{"b":' + b"9" * 40 + b"}}", "integer_range", "9999"),
    (b'{"a":1e400}', "bad_json", "infinity"),
    (b'{"a":-Infinity}', "bad_json", ""),
    (b'{"a":NaN}', "bad_json", ""),
    (rb'{"a":"\ud800"}', "bad_json", "surrogate"),
    (rb'{"\udc00":1}', "bad_json", "surrogate"),
    (b'{"a":"\xff"}', "bad_encoding", "byte 6 (0xff)"),
    (b'{"name":"caf\xe9"}', "bad_encoding", "byte 12 (0xe9)"),
    ('{"a":"é'.encode()[:-1], "bad_encoding", "byte 6 (0xc3)"),
    ('{"a":1}'.encode("utf-16"), "bad_encoding", "byte 0 (0xff)"),
    (b'\xef\xbb\xbf{"a":1}', "bad_json", ""),
    (b'[{"a":1}]', "not_an_object", "list"),
    (b'"a"', "not_an_object", "str"),
    (b"1", "not_an_object", "int"),
    (b"null", "not_an_object", ""),
    (b"", "bad_json", ""),
    (b'{"a":1}\r{"b":2}', "bad_json", ""),
    (b'{"messages": [{"role": "user", "content": "cut', "bad_json", ""),
    (b'{"a":1,}', "bad_json", "comma"),
    (b'{"a":01}', "bad_json", "zero"),
    (rb'{"a":"\x41"}', "bad_json", "escape"),
    (b'{"a":"\t"}', "bad_json", "control character"),
]


def refusal(raw: bytes) -> tuple[str, str]:
    """The code that a line is refused with, and the detail; empty where it is read."""
    try:
        parse(raw)
    except RowError as error:
        return error.code, error.detail
    return "", ""


def test_a_line_is_read_as_the_standard_library_reads_it_or_refused() -> None:
    """Each kind of fault has its code, and the detail names what was found."""
    for name, raw in CASES.items():
        wanted = reference(raw)
        assert bool(refusal(raw)[0]) == (wanted is None), name
        assert wanted is None or same(parse(raw), wanted), name
    for raw, code, words in REFUSED:
        found, detail = refusal(raw)
        assert found == code, raw
        assert words in detail, raw
    order = {"z": 1, "a": {"y": "é", "b": None}}
    assert dump(order) == '{"z":1,"a":{"y":"é","b":null}}'  # of keys, as they were written


@pytest.mark.parametrize(("opens", "closes"), [('{"a":', "}"), ("[", "]")], ids=["dict", "list"])
def test_nesting_is_accepted_to_the_limit_and_not_beyond(opens: str, closes: str) -> None:
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
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ROWS = st.dictionaries(TEXT, VALUES, max_size=5)
SEPARATORS = st.sampled_from(
    [(",", ":"), (", ", ": "), (" ,\t", " :"), (",\r\n", "\t: "), (",", " :")]
)


@settings(max_examples=60, deadline=None)
@given(row=ROWS, ascii_only=st.booleans(), separators=SEPARATORS)
def test_any_object_round_trips_like_the_standard_parser(
    row: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    """However an object is spelled, what arrives is exactly what ``json.loads`` reads."""
    raw = json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode()
    assert same(parse(raw), json.loads(raw))
    assert same(parse(raw), row)


def spelled(value: Any, separators: tuple[str, str], doubled: list[int]) -> str:
    """JSON text of a value in which the object that ``doubled`` counts down to has a key twice."""
    comma, colon = separators
    if isinstance(value, dict):
        doubled[0] -= 1
        mine = doubled[0] == 0
        members = [
            f"{json.dumps(k)}{colon}{spelled(v, separators, doubled)}" for k, v in value.items()
        ]
        if mine:
            key = next(iter(value), "k")
            members += [f"{json.dumps(key)}{colon}null"] * (1 if value else 2)
        return "{" + comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + comma.join(spelled(item, separators, doubled) for item in value) + "]"
    return json.dumps(value)


def objects(value: Any) -> int:
    """How many objects a value holds, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(objects, value.values()))
    return sum(map(objects, value)) if isinstance(value, list) else 0


@settings(max_examples=60, deadline=None)
@given(row=ROWS, separators=SEPARATORS, data=st.data())
def test_a_duplicate_key_anywhere_is_always_refused(
    row: dict[str, Any], separators: tuple[str, str], data: st.DataObject
) -> None:
    """Whatever else a row holds, a key that stands twice in one of its objects refuses it."""
    which = data.draw(st.integers(1, objects(row)))
    assert refusal(spelled(row, separators, [which]).encode())[0] == "duplicate_key"


@settings(max_examples=30, deadline=None)
@given(row=ROWS, number=st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63) - 1))
def test_an_integer_beyond_64_bits_is_always_refused(row: dict[str, Any], number: int) -> None:
    """No integer is silently turned into a float, wherever it stands."""
    raw = json.dumps({**row, "deep": [{"number": number}]}).encode()
    assert refusal(raw)[0] == "integer_range"


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=40) | st.text('{}[]":,\\ \t01e-NaN', max_size=25).map(str.encode))
def test_no_bytes_crash_the_parser(raw: bytes) -> None:
    """Any line is either an object that the standard parser reads alike, or refused as a row."""
    try:
        row = parse(raw)
    except RowError:
        return
    assert same(row, json.loads(raw))
