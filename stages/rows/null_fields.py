"""Nulls that a typed table may have added to tools and tool calls.

An Arrow struct has the same keys in every row. Where rows of JSON differ in their keys, the table
has null for the missing ones, and a chat template would print arguments that the data never had.
Whether a null was in the data cannot be seen, so the user must say: ``--null-fields drop|keep``.
In any other place, null and a missing key are the same for every format.
"""

from __future__ import annotations

from typing import Any

from stages.contract import Row
from stages.errors import AskError

CHOICES = ("drop", "keep")
_PRINTED = ("tools", "functions")
_OF_TURNS = ("tool_calls", "function_call")


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(inner is None or _has_null(inner) for inner in value.values())
    return isinstance(value, list) and any(map(_has_null, value))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner) for key, inner in value.items() if inner is not None}
    return [_without(inner) for inner in value] if isinstance(value, list) else value


def _turn(turn: Any, choice: str | None, where: str) -> Any:
    if not isinstance(turn, dict):
        return turn
    with_nulls = [key for key in _OF_TURNS if _has_null(turn.get(key))]
    if with_nulls:
        _require(choice, f"{where}[].{with_nulls[0]}")
    return {**turn, **{key: _without(turn[key]) for key in with_nulls}} if with_nulls else turn


def _require(choice: str | None, where: str) -> None:
    if choice is None:
        raise AskError(
            "null_fields",
            f"{where} holds nulls in a typed table, which gives every row the same keys: the "
            "template may print keys that were not in the original row",
            "Add --null-fields drop if the table added the nulls, or --null-fields keep if they "
            "are data.",
        )


def is_settled(value: Any) -> bool:
    """Whether a column that is neither ``tools`` nor ``functions`` holds no such null."""
    turns = value if isinstance(value, list) else [value]
    calls = (turn.get(key) for turn in turns if isinstance(turn, dict) for key in _OF_TURNS)
    return not any(map(_has_null, calls))


def settled(row: Row, choice: str | None) -> Row:
    """A row of a typed table with its nulls as ``--null-fields`` says.

    Args:
        choice: ``drop``, ``keep``, or None without the option.

    Raises:
        AskError: a tool or a tool call has some, and the option is missing.
    """
    if choice == "keep":
        return row
    result = dict(row)
    for name, value in row.items():
        if name in _PRINTED and _has_null(value):
            _require(choice, name)
            result[name] = _without(value)
        elif isinstance(value, list):
            result[name] = [_turn(one, choice, name) for one in value]
        elif isinstance(value, dict):
            result[name] = _turn(value, choice, name)
    return result
