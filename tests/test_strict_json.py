"""The strict JSON door: what is accepted is unambiguous and arrives exactly as written."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import RowError
from stages.files.strict_json import MAX_DEPTH, dump, parse

ACCEPTED: dict[str, tuple[bytes, dict[str, Any]]] = {
    "empty_object": (b"{}", {}),
    "empty_key": (b'{"":0}', {"": 0}),
    "blanks_around": (b' \t{ "a" : 1 } ', {"a": 1}),
    "colon_behind_tabs": (b'{"a"\t:1,"b"\t\t : 2}', {"a": 1, "b": 2}),
    "carriage_return_at_the_end": (b'{"a":1}\r', {"a": 1}),
    "line_breaks_between_tokens": (b'{"a"\r\n:\n1}', {"a": 1}),
    "largest_int64": (b'{"a":9223372036854775807}', {"a": 2**63 - 1}),
    "smallest_int64": (b'{"a":-9223372036854775808}', {"a": -(2**63)}),
    "floats_beyond_int64": (b'{"a":1e30,"b":-1E+30}', {"a": 1e30, "b": -1e30}),
    "float_with_an_integral_value": (b'{"a":9223372036854775808.0}', {"a": 2.0**63}),
    "long_fraction": (b'{"a":0.1000000000000000055511151231257827}', {"a": 0.1}),
    "largest_float": (b'{"a":1.7976931348623157e308}', {"a": 1.7976931348623157e308}),
    "smallest_float": (b'{"a":5e-324}', {"a": 5e-324}),
    "escaped_quotes_like_a_key": (rb'{"a":"x\":y","b":"\":\":"}', {"a": 'x":y', "b": '":":'}),
    "texts_that_begin_with_a_colon": (b'{"a":": b","b":":"}', {"a": ": b", "b": ":"}),
    "backslash_before_the_quote": (rb'{"a":"\\","b":"\\\""}', {"a": "\\", "b": '\\"'}),
    "same_key_on_two_levels": (
        b'{"a":{"a":[{"a":1},{"a":2}]}}',
        {"a": {"a": [{"a": 1}, {"a": 2}]}},
    ),
    "keys_equal_only_when_composed": (
        '{"\u00e9":1,"e\u0301":2}'.encode(),
        {"\u00e9": 1, "e\u0301": 2},
    ),
    "surrogate_pair": (rb'{"a":"\ud83d\ude00"}', {"a": "\U0001f600"}),
    "escaped_null_character": (rb'{"a":"\u0000"}', {"a": "\0"}),
    "raw_line_separators": (
        '{"a":"x\u2028y\u2029z\x85"}'.encode(),
        {"a": "x\u2028y\u2029z\x85"},
    ),
    "raw_delete_character": (b'{"a":"\x7f"}', {"a": "\x7f"}),
    "solidus_escaped": (rb'{"a":"\/"}', {"a": "/"}),
}

REFUSED: dict[str, tuple[bytes, str, str]] = {
    "duplicate_key": (b'{"a":1,"a":1}', "duplicate_key", "'a'"),
    "duplicate_behind_a_space": (b'{"a" :1,"a":2}', "duplicate_key", "'a'"),
    "duplicate_behind_two_spaces": (b'{"a":1,"a"  :2}', "duplicate_key", "'a'"),
    "duplicate_behind_a_tab": (b'{"a"\t:1,"a":2}', "duplicate_key", "'a'"),
    "duplicates_both_spaced": (b'{"a" :1,"a"\t:2}', "duplicate_key", "'a'"),
    "duplicate_behind_a_return": (b'{"a"\r:1,"a":2}', "duplicate_key", "'a'"),
    "duplicate_behind_a_break": (b'{"a":1,"a"\n:2}', "duplicate_key", "'a'"),
    "duplicate_spelled_otherwise": (rb'{"a":1,"\u0061":2}', "duplicate_key", "'a'"),
    "duplicate_empty_key": (b'{"":1,"":2}', "duplicate_key", "''"),
    "duplicate_in_an_object": (b'{"x":{"a":1,"a":2}}', "duplicate_key", "'a'"),
    "duplicate_in_a_list": (b'{"x":[0,[{"a":1,"a":{}}]]}', "duplicate_key", "'a'"),
    "duplicate_hides_an_object": (b'{"a":{"b":1,"c":2},"a":3}', "duplicate_key", "'a'"),
    "duplicate_hidden_in_a_duplicate": (b'{"a":{"b":1,"b":2},"a":3}', "duplicate_key", ""),
    "duplicate_beside_a_quoted_colon": (rb'{"a":1,"a":"\":"}', "duplicate_key", "'a'"),
    "integer_2_63": (b'{"a":9223372036854775808}', "integer_range", "9223372036854775808"),
    "integer_below_int64": (b'{"a":-9223372036854775809}', "integer_range", "-9223372036854775809"),
    "integer_2_64_minus_1": (
        b'{"a":18446744073709551615}',
        "integer_range",
        "18446744073709551615",
    ),
    "integer_2_64": (b'{"a":[18446744073709551616]}', "integer_range", "18446744073709551616"),
    "integer_of_40_digits": (b'{"a":{"b":' + b"9" * 40 + b"}}", "integer_range", "9999"),
    "float_beyond_double": (b'{"a":1e400}', "bad_json", "infinity"),
    "negative_float_beyond_double": (b'{"a":-1e400}', "bad_json", "infinity"),
    "nan": (b'{"a":NaN}', "bad_json", ""),
    "infinity": (b'{"a":Infinity}', "bad_json", ""),
    "negative_infinity": (b'{"a":-Infinity}', "bad_json", ""),
    "lone_high_surrogate": (rb'{"a":"\ud800"}', "bad_json", "surrogate"),
    "lone_low_surrogate": (rb'{"a":"\udc00x"}', "bad_json", "surrogate"),
    "lone_surrogate_in_a_key": (rb'{"\ud800":1}', "bad_json", "surrogate"),
    "byte_ff": (b'{"a":"\xff"}', "bad_encoding", "byte 6 (0xff)"),
    "latin_1": (b'{"name":"caf\xe9"}', "bad_encoding", "byte 12 (0xe9)"),
    "overlong_form": (b'{"a":"\xc0\x80"}', "bad_encoding", "byte 6 (0xc0)"),
    "surrogate_as_utf_8": (b'{"a":"\xed\xa0\x80"}', "bad_encoding", "byte 6 (0xed)"),
    "cut_off_in_a_character": ('{"a":"é'.encode()[:-1], "bad_encoding", "byte 6 (0xc3)"),
    "utf_16": ('{"a":1}'.encode("utf-16"), "bad_encoding", "byte 0 (0xff)"),
    "byte_order_mark": (b'\xef\xbb\xbf{"a":1}', "bad_json", ""),
    "array": (b'[{"a":1}]', "not_an_object", "list"),
    "string": (b'"a"', "not_an_object", "str"),
    "number": (b"1", "not_an_object", "int"),
    "null": (b"null", "not_an_object", ""),
    "true": (b"true", "not_an_object", "bool"),
    "nothing": (b"", "bad_json", ""),
    "two_objects": (b'{"a":1} {"b":2}', "bad_json", ""),
    "two_objects_behind_a_return": (b'{"a":1}\r{"b":2}', "bad_json", ""),
    "cut_off": (b'{"messages": [{"role": "user", "content": "cut', "bad_json", ""),
    "trailing_comma": (b'{"a":1,}', "bad_json", "comma"),
    "single_quotes": (b"{'a':1}", "bad_json", ""),
    "unquoted_key": (b"{a:1}", "bad_json", ""),
    "comment": (b'{"a":1/* x */}', "bad_json", ""),
    "leading_zero": (b'{"a":01}', "bad_json", "zero"),
    "leading_plus": (b'{"a":+1}', "bad_json", ""),
    "hexadecimal": (b'{"a":0x1}', "bad_json", ""),
    "no_digit_behind_the_point": (b'{"a":1.}', "bad_json", ""),
    "no_digit_before_the_point": (b'{"a":.5}', "bad_json", ""),
    "unknown_escape": (rb'{"a":"\x41"}', "bad_json", "escape"),
    "raw_tab_in_a_text": (b'{"a":"\t"}', "bad_json", "control character"),
    "raw_return_in_a_text": (b'{"a":"x\ry"}', "bad_json", "control character"),
    "raw_null_byte": (b'{"a":"\0"}', "bad_json", "control character"),
    "python_literal": (b'{"a":None}', "bad_json", ""),
}


def refusal(raw: bytes) -> RowError:
    """What a line is refused with."""
    with pytest.raises(RowError) as caught:
        parse(raw)
    return caught.value


def equal(one: Any, other: Any) -> bool:
    """Equality that tells 1 from 1.0 and True, 0.0 from -0.0, and one key order from another."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@pytest.mark.parametrize(("raw", "wanted"), ACCEPTED.values(), ids=ACCEPTED)
def test_unambiguous_lines_arrive_as_written(raw: bytes, wanted: dict[str, Any]) -> None:
    """What JSON allows without two readings is accepted, each value of its own type."""
    assert equal(parse(raw), wanted)


@pytest.mark.parametrize(("raw", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_ambiguous_or_broken_lines_are_refused(raw: bytes, code: str, words: str) -> None:
    """Each kind of fault has its code, and the detail names what was found."""
    error = refusal(raw)
    assert error.code == code
    assert words in error.detail


@pytest.mark.parametrize("digits", [41, 309, 401, 5000])
def test_an_integer_beyond_any_float_is_refused(digits: int) -> None:
    """Neither a float's range nor Python's limit on digits lets a huge integer through."""
    assert refusal(b'{"a":1' + b"0" * digits + b"}").code in ("integer_range", "bad_json")


@pytest.mark.parametrize(("opens", "closes"), [('{"a":', "}"), ("[", "]")], ids=["dict", "list"])
def test_nesting_is_accepted_to_the_limit_and_not_beyond(opens: str, closes: str) -> None:
    """64 levels are read; 65 are refused, by that name."""

    def nested(depth: int) -> bytes:
        return ('{"x":' + opens * (depth - 1) + "0" + closes * (depth - 1) + "}").encode()

    assert equal(parse(nested(MAX_DEPTH)), json.loads(nested(MAX_DEPTH)))
    assert refusal(nested(MAX_DEPTH + 1)).code == "json_too_deep"
    assert refusal(nested(1000)).code == "json_too_deep"


@pytest.mark.parametrize("depth", [1_025, 100_000])
def test_absurd_nesting_is_refused_and_does_not_crash(depth: int) -> None:
    """A line of brackets is a bad row, not the end of the process."""
    assert refusal(b'{"a":' + b"[" * depth + b"]" * depth + b"}").code in (
        "json_too_deep",
        "bad_json",
    )


def test_compact_output_keeps_the_order_of_keys() -> None:
    """What is dumped has the keys in the order they were written."""
    assert dump({"z": 1, "a": {"y": "é", "b": None}}) == '{"z":1,"a":{"y":"é","b":null}}'


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


@settings(max_examples=150, deadline=None)
@given(row=ROWS, ascii_only=st.booleans(), separators=SEPARATORS)
def test_any_object_round_trips_like_the_standard_parser(
    row: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    """However an object is spelled, what arrives is exactly what ``json.loads`` reads."""
    raw = json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode()
    assert equal(parse(raw), json.loads(raw))
    assert equal(parse(raw), row)


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


@settings(max_examples=150, deadline=None)
@given(row=ROWS, separators=SEPARATORS, data=st.data())
def test_a_duplicate_key_anywhere_is_always_refused(
    row: dict[str, Any], separators: tuple[str, str], data: st.DataObject
) -> None:
    """Whatever else a row holds, a key that stands twice in one of its objects refuses it."""
    which = data.draw(st.integers(1, objects(row)))
    assert refusal(spelled(row, separators, [which]).encode()).code == "duplicate_key"


@settings(max_examples=60, deadline=None)
@given(row=ROWS, number=st.integers(2**63, 2**70) | st.integers(-(2**70), -(2**63) - 1))
def test_an_integer_beyond_64_bits_is_always_refused(row: dict[str, Any], number: int) -> None:
    """No integer is silently turned into a float, wherever it stands."""
    raw = json.dumps({**row, "deep": [{"number": number}]}).encode()
    assert refusal(raw).code == "integer_range"


@settings(max_examples=100, deadline=None)
@given(raw=st.binary(max_size=40) | st.text('{}[]":,\\ \t01e-NaN', max_size=25).map(str.encode))
def test_no_bytes_crash_the_parser(raw: bytes) -> None:
    """Any line is either an object that the standard parser reads alike, or refused as a row."""
    try:
        row = parse(raw)
    except RowError:
        return
    assert equal(row, json.loads(raw))
