"""Nulls and booleans in the arguments of calls, which some templates print as Python spells them.

Servers hand calls on as JSON, in which they are ``null``, ``true`` and ``false``. A template that
prints an argument itself, without ``tojson``, has ``None``, ``True`` and ``False`` there; so has
the answer that is trained.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from stages.chat_template import turn_ends
from stages.chat_template.template import Template
from stages.contract import Message
from stages.errors import RowError

NOTE = "python_values"
_NUMBER = 90817263  # is printed alike by both
_VALUES = (None, True, False)
_INSIDE: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "list": lambda value: [value],
    "dict": lambda value: {"inside": value},
}
Spelled: TypeAlias = frozenset[tuple[str, str]]  # what an argument is, a value in it


def _printed(template: Template, argument: Any) -> str | None:
    """A call with an argument in the template; None where that refuses it."""
    turn = turn_ends.calls("quince")
    turn[turn_ends.CALLS][0]["function"]["arguments"]["more"] = argument
    try:
        return template.render([turn_ends.asks("a question"), turn], turn_ends.TOOLS)
    except RowError:
        return None


def in_python(template: Template) -> Spelled:
    """Which values a template prints as Python spells them: alone, in a list and in an object.

    Seen by the text of a number in the same place: the value's name stands where that stood.
    """
    found = set()
    for kind, inside in _INSIDE.items():
        text = _printed(template, inside(_NUMBER)) or ""
        for value in _VALUES if str(_NUMBER) in text else ():
            if _printed(template, inside(value)) == text.replace(str(_NUMBER), str(value)):
                found.add((kind, str(value)))
    return frozenset(found)


def _values(argument: Any) -> Iterator[tuple[str, str]]:
    """The nulls and booleans in an argument, each with what the argument is."""
    kind = type(argument).__name__ if isinstance(argument, (list, dict)) else ""
    waiting = [argument]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, dict)):
            waiting += value.values() if isinstance(value, dict) else value
        elif value is None or isinstance(value, bool):
            yield kind, str(value)


def holds(conversations: Iterable[Iterable[Message]], spelled: Spelled) -> bool:
    """Whether a call of some conversations has a value that the template spells so."""
    turns = (turn for turns in conversations for turn in turns)
    calls = (call for turn in turns for call in (turn.fields or {}).get(turn_ends.CALLS) or ())
    return any(
        spelled.intersection(_values(argument))
        for call in calls
        for argument in call["function"]["arguments"].values()
    )
