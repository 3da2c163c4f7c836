"""Nulls that a table may have made: keys of tools and of tool calls that its rows do not have.

An Arrow struct has the same keys in every row. Where rows of JSON differ in their keys, whoever
made the table filled the missing ones with null, and a template would print arguments that nobody
wrote. Whether a null was written cannot be seen, so it is asked: ``--null-fields drop|keep``.
Null in any other place is the same as a missing key for every format.
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
            "template would print keys that the row may never have had",
            "Add --null-fields drop where the table made them, or --null-fields keep where the "
            "rows did.",
        )


def settled(row: Row, choice: str | None) -> Row:
    """A row of a typed table with its nulls as ``--null-fields`` says.

    Args:
        choice: ``drop``, ``keep``, or None where nothing was said.

    Raises:
        AskError: there are some in what a template prints as a whole, and nothing was said.
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
