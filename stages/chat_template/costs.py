"""What a chat template's work costs, in characters, and what it may do with a value at all.

Every value is a text, a number, a list, a tuple, a dict, or one of Jinja's own objects; anything
else, bytes first of all, has no size here, and what has no size is refused. Work is measured before
it is done: ``size`` and ``length`` measure values, ``cost`` a filter, a test or a method.
"""

import itertools
import re
import string
from collections.abc import Iterable, Iterator, Sequence
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Undefined
from jinja2.utils import Cycler

LARGEST = 1 << 24  # characters of one value
ELEMENT = 64  # what an element of a list counts as, in characters
WIDEST = 1000  # largest number given to filters and methods as width, count or indent
_HASHED = 60  # bits of a number whose hash is its own; Python lets larger ones collide
_LARGE = 1 << 12  # what a larger number counts as: it may print so many digits
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # where str.splitlines cuts

_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_FLAT: tuple[type, ...] = (list, tuple, *_VIEWS)
_HOLDING: tuple[Any, ...] = (*_FLAT, dict)
_SIZED: tuple[Any, ...] = (*_HOLDING, range)
_PLAIN = (float, type(None), Undefined)
_FIELDS = string.Formatter().parse

# The attributes that values have in a template, if they are no objects of Jinja's.
_OF_TEXTS = (
    "capitalize casefold center count endswith find format index isalnum isalpha isascii isdecimal "
    "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower "
    "lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit "
    "rstrip split splitlines startswith strip swapcase title upper zfill"
)
ATTRIBUTES: tuple[tuple[type, list[str]], ...] = (
    (str, _OF_TEXTS.split()),
    (dict, ["copy", "get", "items", "keys", "values"]),
    (list, ["copy", "count", "index"]),
    (tuple, ["count", "grouper", "index", "list"]),  # those of groupby have names
    (Cycler, ["current", "next", "reset"]),
)

# What a filter, a test or a method does with its first value, where it does less than walk through
# all of it once: look at it, or at its elements.
_LOOKING = set("attr count d default first last length".split())
_STEPPING = set("batch items list map reject rejectattr reverse select selectattr slice".split())
WALKING = (
    set("first groupby in join max min sort sum unique".split()) | _STEPPING
)  # an iterator, too
_PARTING = set("dictsort groupby join max min sort title unique wordcount".split()) | _STEPPING
_SEARCHING = set(
    "count find index lstrip partition replace rfind rindex rpartition rsplit rstrip split strip "
    "trim".split()
)
_WIDE = set("batch center indent ljust rjust round slice tojson truncate zfill".split())
_NUMERIC = {"divisibleby", "even", "odd", "round"}  # of a text, these would format or repeat it
_ESCAPING = {"e": 5, "escape": 5, "tojson": 12}  # the most characters that one becomes


def size(value: Any) -> int:
    """Characters of a value and ``ELEMENT`` for each element, shared ones counted each time.

    Raises:
        SecurityError: more than ``LARGEST``; it holds something that templates do not handle.
    """
    if isinstance(value, str):
        return str.__len__(value)
    total = ELEMENT
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += str.__len__(item)
        elif isinstance(item, _HOLDING):
            total += ELEMENT * len(item)
            if total <= LARGEST:
                waiting += item
                if isinstance(item, dict):  # of keys that cannot be chosen to collide
                    if any(not isinstance(key, str) and size(key) > ELEMENT for key in item):
                        raise SecurityError("a key of a dict is neither a text nor a small number")
                    waiting += item.values()
                    total += ELEMENT * len(item)
        elif isinstance(item, int):
            total += _LARGE if item.bit_length() > _HASHED else 0
        elif isinstance(item, range):
            total += ELEMENT * len(item)
        elif not isinstance(item, _PLAIN):
            raise SecurityError(f"it handles a {type(item).__name__} as data")
        if total > LARGEST:
            raise SecurityError("a value grows too large")
    return total


def length(value: Any) -> int:
    """Roughly the same without walking through nested values, for operations that do not either."""
    if isinstance(value, str):
        return str.__len__(value)
    return ELEMENT * (1 + len(value) if isinstance(value, _SIZED) else 1)


def weight(value: Any) -> int:
    """The size of a value, and ``ELEMENT`` for objects that neither print nor compare in full.

    Raises:
        SecurityError: as ``size``; a method, which would print the value that has it.
    """
    if isinstance(value, (BuiltinMethodType, MethodType)):
        raise SecurityError("it handles a method as data")
    return size(value) if isinstance(value, (str, int, *_HOLDING)) else ELEMENT


def printed(value: Any) -> str:
    """A value as text; raises as ``size``: other objects would print where they are in memory."""
    size(value)
    return str(value)


def checked(amount: int) -> int:
    """An amount of characters that are about to be made.

    Raises:
        SecurityError: more than ``LARGEST``.
    """
    if amount > LARGEST:
        raise SecurityError("a text grows too large")
    return amount


def bounded(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of a text that is made bit by bit; raises as ``checked``."""
    made = 0
    for piece in pieces:
        made = checked(made + len(piece))
        yield piece


def settled(values: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments with a list in the place of each iterator, whose elements nobody could measure."""
    most = LARGEST // ELEMENT + 1  # which is too many for ``size``
    return tuple(
        list(itertools.islice(value, most)) if hasattr(value, "__next__") else value
        for value in values
    )


def colliding(value: Any) -> int:
    """The cost of hashing all elements, which may have been chosen to collide."""
    return 2 * (length(value) // ELEMENT) ** 2


def cost(name: str, values: Sequence[Any], method: bool = False) -> int:
    """What a filter, a test or a method costs: all that it reads and searches, and what it makes.

    Args:
        values: the filtered value or the method's owner, then the arguments in their order.

    Raises:
        SecurityError: the result may be larger than ``LARGEST``, or it is no work for a template.
    """
    first, rest = values[0], values[1:]
    if name in _LOOKING and not method:
        return sum(map(length, values))
    work = sum(map(size, rest)) + (length if name in _STEPPING else size)(first)
    if name in _NUMERIC and isinstance(first, (str, *_FLAT)):
        raise SecurityError(f"{name} is for numbers")
    if name in ("format", "replace") and not isinstance(first, str):
        first = str(first)
    if name in _WIDE:
        _narrow(rest)
    work *= {"in": 2, "title": 4, "wordcount": 4}.get(name, 1)
    if name == "unique":
        work += colliding(first)
    if name == "sum" and any(isinstance(one, _FLAT) for one in rest):  # each sum is a new list
        work *= length(first) // ELEMENT
    if isinstance(first, str):
        if name in _PARTING and not method:
            work = checked(ELEMENT * work)
        if name in _SEARCHING:
            work += str.__len__(first) * sum(map(length, rest)) >> 4
        if name == "format" and method and any("{" in (f[2] or "") for f in _FIELDS(first)):
            raise SecurityError("a format takes its width from a value")
    return work + checked(_made(name, first, rest, method))


def grown(template: str, values: Sequence[Any]) -> int:
    """An upper bound on the characters of a format that was given values; raises as ``cost``."""
    plain_format(template)
    if "*" in str.__str__(template):
        _narrow(values)
    fields = str.count(template, "{") + str.count(template, "%")
    return checked(length(template) + fields * (WIDEST + size(list(values))))


def _made(name: str, first: Any, rest: Sequence[Any], method: bool) -> int:
    """An upper bound on a result that may be larger than what it is made of; else 0."""
    if name == "join" and rest:
        glue, pieces = (first, rest[0]) if method else (list(rest), first)
        return size(glue) * (length(pieces) // (1 if isinstance(pieces, str) else ELEMENT))
    if not isinstance(first, str):
        return size(first) * _ESCAPING[name] if name in _ESCAPING else 0
    if name == "format":
        return grown(first, rest)
    if name == "replace" and len(rest) > 1:
        return length(first) + str.count(first, str(rest[0])) * max(size(str(one)) for one in rest)
    if name in ("split", "rsplit"):
        marks = [mark for mark in rest if isinstance(mark, str)]
        return ELEMENT * (str.count(first, marks[0]) if marks else length(first) >> 1)
    if name in ("indent", "splitlines"):
        widths = [one if isinstance(one, int) else size(one) for one in rest]
        return (ELEMENT + sum(widths)) * (sum(str.count(first, mark) for mark in _BREAKS) + 1)
    return length(first) * _ESCAPING.get(name, 0)


def _narrow(values: Sequence[Any]) -> None:
    """Refuse large numbers as a width, a count or an indent."""
    for value in values:
        if isinstance(value, int) and abs(value) > WIDEST:
            raise SecurityError(f"{value} is not a width or count for a text")


def plain_format(text: str) -> None:
    """Refuse a format text with a number of four digits or more, which may be a width."""
    if re.search(r"\d{4}", text):
        raise SecurityError("a format pads to a width of four digits or more")
