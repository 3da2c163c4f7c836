"""What the values of a column are, in a few words: ``number 1 to 5``, ``2 to 6 turns``."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import orjson

FEW = 6  # different values that are listed
SHORT = 24  # characters of a value that is listed
_TURN = ({"role", "from"}, {"content", "value", "parts", "tool_calls"})


def shape_of(values: Sequence[Any]) -> str:
    """The shape of values that are not empty, as words; of several, the most frequent first."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(_kind(value), []).append(value)
    ordered = sorted(by_kind.items(), key=lambda pair: -len(pair[1]))
    return " or ".join(_WORDS[kind](some) for kind, some in ordered)


def is_turn(value: Any) -> bool:
    """Whether a value says who speaks, and what."""
    return isinstance(value, dict) and all(not keys.isdisjoint(value) for keys in _TURN)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "json" if _is_json(value) else "text"
    if isinstance(value, dict):
        return "object"
    return "turns" if value and all(map(is_turn, value)) else "list"


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(orjson.loads(text), dict | list)
    except orjson.JSONDecodeError:
        return False


def _few(values: Sequence[Any]) -> str:
    """The different values of a column that has few short ones; else empty."""
    spelled = (str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    counts = dict.fromkeys(spelled)
    repeated = len(counts) <= FEW and 2 * len(counts) <= len(values)
    return ", ".join(counts) if repeated and max(map(len, counts)) <= SHORT else ""


def _span(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"


def _text(values: Sequence[str]) -> str:
    if few := _few(values):
        return f"text: {few}"
    length = round(median(map(len, values)))
    return f"text of about {length:,} characters"


def _listed(values: Sequence[list[Any]]) -> str:
    inner = [one for value in values for one in value if one is not None]
    kinds = {_kind(one) for one in inner}
    kind = kinds.pop() if len(kinds) == 1 else ""
    few = _few(inner) if kind in ("text", "number", "flag") else ""
    sizes = [*map(len, values)]
    noun = _NOUNS.get(kind, "item") + "s" * (max(sizes) != 1)
    return f"list of {_span(sizes)} {noun}" + (f" ({few})" if few else "")


_NOUNS = {
    "flag": "flag", "number": "number", "text": "text", "json": "JSON text",
    "object": "object", "list": "list", "turns": "dialogue",
}  # fmt: skip
_WORDS = {
    "flag": lambda values: " or ".join(sorted({str(v).lower() for v in values}, reverse=True)),
    "number": lambda values: f"number {_few(values) or _span(values)}",
    "text": _text,
    "json": lambda values: "JSON text",
    "object": lambda values: "object",
    "turns": lambda values: f"{_span([*map(len, values)])} turns",
    "list": _listed,
}
