"""The tools that a row offers the model, however they are written.

A list of objects; a list of JSON texts; one JSON text of all, or several one after another; one
object, or a list inside of an object. All of them become the same list, for every task and place.
"""

import json
import re
from typing import Any

from stages.contract import Row
from stages.errors import RowError
from stages.formats._parts import json_value

TOOLS = ("tools", "functions")
_CODE = "bad_tools"
_NAMING = ("name", "function")  # a key of what is one tool
_BETWEEN = re.compile(r"[\s,]*")  # two values of a text
_ENDS = json.JSONDecoder(parse_int=str, parse_float=str)  # finds the end of a value, no more


def tools(row: Row) -> list[Any] | None:
    """The tools in a row's columns; None where it has none.

    Raises:
        RowError: a column holds something else, or two columns name different tools.
    """
    if row.keys().isdisjoint(TOOLS):
        return None
    named = [listed for name in TOOLS if (listed := listed_in(row.get(name), name))]
    if named[1:] and named[0] != named[1]:
        raise RowError(_CODE, f"{' and '.join(TOOLS)} name different tools")
    return named[0] if named else None


def listed_in(value: Any, where: str) -> list[Any]:
    """Tools as a list of objects; empty where there are none.

    Raises:
        RowError: ``bad_tools``: the value is something else.
    """
    if value is None:
        return []
    if isinstance(value, str):
        value = _parsed(value, where)
    if isinstance(value, dict):
        value = _inside(value)
    if not isinstance(value, list):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise RowError(_CODE, f"{where} is {kind}, not a list")
    found: list[Any] = []
    for at, one in enumerate(value):
        if isinstance(one, str):
            found += listed_in(one, f"{where}[{at}]")
        else:
            inside = _inside(one) if isinstance(one, dict) else one
            found += inside if isinstance(inside, list) else [one]
    return found


def _inside(one: dict[str, Any]) -> Any:
    """The list that an object wraps, or that it makes where it is a tool; else the object."""
    if any(key in one for key in _NAMING):
        return [one]
    values = [value for value in one.values() if value is not None]
    return values[0] if len(values) == 1 and isinstance(values[0], list) else one


def _parsed(text: str, where: str) -> Any:
    """The value of a JSON text, or the list of those that follow one another in it."""
    values: list[Any] = []
    at, text = 0, text.strip()
    while at < len(text):
        try:
            stop = _ENDS.raw_decode(text, at)[1]
        except (ValueError, RecursionError):
            return json_value(text, where, _CODE)  # which says what is wrong
        values.append(json_value(text[at:stop], where, _CODE))
        between = _BETWEEN.match(text, stop)
        at = between.end() if between else stop
    return values[0] if len(values) == 1 else values
