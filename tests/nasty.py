"""Nasty inputs, made from JSON's grammar, and what the standard library says of each.

Every case is the text of one row. They come from the grammar's rules (RFC 8259): for each rule its
smallest and largest forms, and the nearest texts that break it.
"""

import itertools
import json
import math
from typing import Any

from support import table

LARGEST_DEPTH = 64
TOLD = table("nasty.toml")


def _numbers() -> dict[str, bytes]:
    signs, wholes = ("", "-", "+"), ("0", "1", "10", "00", "01", "", "9223372036854775807")
    fractions, exponents = ("", ".0", ".5", "."), ("", "e0", "E+2", "e-3", "e", "e+", "E1.5")
    return {
        f"number {sign}{whole}{fraction}{exponent}": (
            f'{{"n":{sign}{whole}{fraction}{exponent}}}'.encode()
        )
        for sign, whole, fraction, exponent in itertools.product(
            signs, wholes, fractions, exponents
        )
        if (sign == "") + (fraction == "") + (exponent == "") >= 2 or whole in ("0", "1")
    }


def _strings() -> dict[str, bytes]:
    escapes = [rf"\{char}" for char in "\"\\/bfnrtu0xaUv'`\n"] + ["\\", "\\\\", '\\"']
    codes = ["0000", "0022", "005c", "00e9", "2028", "FFFF", "fffe", "d7ff", "e000", "12", "123g"]
    codes += ["d800", "dbff", "dc00", "dfff", "d83d\\ude00", "d83d\\u0041", "dc00\\ud800"]
    raw = [chr(code) for code in (*range(0x20), 0x7F, 0x80, 0x85, 0x2028, 0x2029, 0xFEFF)]
    raw += ["\u0300", "\u202e", "\ufffd", "\uffff", "\U0010ffff", "<|im_end|>", "ки", "{{x}}", "%s"]
    texts = {f"escape {t!r}": t for t in escapes} | {f"code {c}": f"\\u{c}" for c in codes}
    texts |= {f"raw {t!r}": t for t in raw}
    found = {name: f'{{"s":"{text}"}}'.encode() for name, text in texts.items()}
    broken = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe9", b"\xc3", b"\x80"]
    return found | {f"bytes {b!r}": b'{"s":"' + b + b'"}' for b in broken}


def _structures() -> dict[str, bytes]:
    whole = b'{"a":[1,{"b":null}],"c":true}'
    found = {f"cut at {n}": whole[:n] for n in range(1, len(whole))}
    found |= {f"without byte {n}": whole[:n] + whole[n + 1 :] for n in range(len(whole))}
    marks = (b",", b":", b'"', b"}", b"]", b"[", b"\x00", b"/**/", b"#", b"\xef\xbb\xbf", b"\x0b")
    places = (0, 1, 4, 5, 6, 7, 19, 20, len(whole))
    found |= {f"{m!r} at {n}": whole[:n] + m + whole[n:] for m in marks for n in places}
    gaps = (0, 1, 4, 29)
    blanks = (b" ", b"\t", b"\r", b"\xc2\xa0", b"\x0c", b"\xe2\x80\xa8")
    found |= {f"blank {b!r} at {n}": whole[:n] + b + whole[n:] for b in blanks for n in gaps}
    return found


def _values() -> dict[str, bytes]:
    words = (*TOLD["values"], "9" * 400, "1" + "0" * 5000)
    found = {f"value {w[:25]}": f'{{"v":{w}}}'.encode() for w in words}
    tops = (b"1", b'"x"', b"null", b"true", b"[]", b"[{}]", b"{}", b"{} {}", b"{}{}", b"1 2", b"x")
    found |= {f"top {t!r}": t for t in tops}
    for depth in (2, 63, 64, 65, 500, 1025, 20_000):
        found[f"lists {depth} deep"] = b'{"d":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
        found[f"objects {depth} deep"] = b'{"d":' * depth + b"0" + b"}" * depth
    found |= {f"keys {k}": f"{{{k}}}".encode() for k in TOLD["keys"]}
    return found


CASES: dict[str, bytes] = {**_numbers(), **_strings(), **_structures(), **_values()}


def same(one: Any, other: Any) -> bool:
    """Equality that tells 1 from 1.0 and True, 0.0 from -0.0, and one key order from another."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


class _RefusedError(ValueError):
    """The reference refuses a row."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _RefusedError("duplicate key")
    return dict(pairs)


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise _RefusedError("integer")
    return int(text)


def _float(text: str) -> float:
    if math.isinf(float(text)):
        raise _RefusedError("float")
    return float(text)


def _constant(text: str) -> float:
    raise _RefusedError(text)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    nested = isinstance(value, (dict, list))
    return nested + max(map(_depth, inner), default=0)


def reference(raw: bytes) -> dict[str, Any] | None:
    """The row that the standard library reads; None where our stated rules refuse it."""
    try:
        row = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_pairs,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
        json.dumps(row, ensure_ascii=False).encode("utf-8")  # no lone surrogate
        if not isinstance(row, dict) or _depth(row) > LARGEST_DEPTH:
            return None
    except (ValueError, RecursionError):
        return None
    return row
