"""Whether the rows that are stored are those that the options choose, by means of another kind.

Filters are in the part of SQL's language that looks at one row, so SQLite evaluates them, whose
database is in memory and has no tables.
"""

import functools
import hashlib
import json
import math
import operator
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from expectations.witness.raw import Row, UnreadError

_CONDITION = re.compile(r"\s*([\w.\-]+)\s*(!=|>=|<=|=|>|<)\s*(.*)", re.DOTALL)
_COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | "(?P<column>(?:[^"]|"")+)"
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?) | (?P<other>[/%]|--)
    | (?P<called>[^\W\d]\w*)\s*(?=\() | (?P<name>[^\W\d]\w*(?:\.\w+)*)""",
    re.VERBOSE,
)
_EXACT = 2**53
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false", "between")
_FIGURES = ("n_tokens", "n_trained", "n_turns", "n_characters", "n_steps", "margin")
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {  # those of SQLite know ASCII alone
    "lower": (1, str.lower),
    "upper": (1, str.upper),
    "length": (1, len),
    "contains": (2, str.__contains__),
    "starts_with": (2, str.startswith),
    "ends_with": (2, str.endswith),
}


@functools.cache
def _sqlite() -> sqlite3.Connection:
    found = sqlite3.connect(":memory:")
    for name, (count, function) in _FUNCTIONS.items():
        found.create_function(name, count, functools.partial(_unless_null, function))
    return found


def _unless_null(function: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else function(*values)


def _value(row: Row, path: str) -> Any:
    value: Any = row
    for key in path.split(".") if path not in row else [path]:
        if isinstance(value, list):
            raise UnreadError("a place in a list")
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _filtered(row: Row, expression: str) -> bool:
    """Whether a filter is true for a row.

    Raises:
        UnreadError: it reads figures of examples, or computes otherwise than SQLite does.
    """
    values: list[Any] = []

    def asked(found: re.Match[str]) -> str:
        column, name = found["column"], found["name"]
        if found["other"] or name in _FIGURES:
            raise UnreadError("a filter by figures, or that divides")
        if not column and (not name or name.lower() in _WORDS):
            return found.group()
        value = _value(row, column.replace('""', '"') if column else name)
        if isinstance(value, list | dict):
            raise UnreadError("a filter by lists or objects")
        if isinstance(value, int) and abs(value) > _EXACT:
            raise UnreadError("a filter by numbers that a double rounds")
        values.append(value)
        return f"?{len(values)}"

    text = _TOKEN.sub(asked, expression)
    try:
        ((found,),) = _sqlite().execute(f"select {text}", values)
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise UnreadError("a filter that SQLite does not evaluate") from error
    return bool(found)


def _compared(row: Row, condition: str) -> bool | None:
    """Whether a row meets a condition of ``--where``; None where it is not known."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        return None
    path, sign, told = match.groups()
    value = _value(row, path)
    try:
        wanted = json.loads(told)
    except ValueError:
        wanted = told
    if isinstance(value, list | dict):
        return None
    if isinstance(wanted, bool) or isinstance(value, bool) or value is None:
        if sign not in ("=", "!=") or value is None or type(value) is not type(wanted):
            return None
    elif isinstance(value, str) != isinstance(wanted, str):
        return None
    return bool(_COMPARED[sign](value, wanted))


def meets(row: Row, words: dict[str, Any], unknown: bool = True) -> bool:
    """Whether a row meets all conditions; ``unknown``: what is said of one that is not read."""
    of_all: list[bool | None] = []
    for known, asked in ((_compared, words["where"]), (_filtered, words["filter"])):
        for one in asked:
            try:
                of_all.append(known(row, one))
            except (UnreadError, TypeError):
                of_all.append(None)
    return False not in of_all and (unknown or None not in of_all)


_Rank: TypeAlias = tuple[float, tuple[int, int]]  # the least one stays


@dataclass
class Equal:
    """Rows that become equal examples, of which one stays.

    Attributes:
        keep: which one, as it was told; empty where equal ones are not left out.
    """

    keep: str
    _rows: dict[bytes, list[tuple[_Rank, str, bool]]] = field(default_factory=dict)

    def add(
        self, made: dict[str, Any], row: Row, place: tuple[int, int], name: str, there: bool
    ) -> None:
        """A row with one example; ``there``: it is stored."""
        if not self.keep:
            return
        which, _, column = self.keep.partition(":")
        try:
            score = _value(row, column) if column else None
        except UnreadError:
            return
        rank = -math.inf
        if isinstance(score, int | float) and not isinstance(score, bool) and score == score:
            rank = float(score) if which == "highest" else -float(score)
        digest = hashlib.sha256(repr(sorted(made.items())).encode()).digest()
        self._rows.setdefault(digest, []).append(((-rank, place), name, there))

    def found(self) -> Iterator[tuple[str, str]]:
        """Each row that is stored in the place of another one, and a sentence."""
        for rows in self._rows.values():
            best, other, _ = min(rows)
            for rank, name, there in rows:
                if there and rank != best:
                    yield name, f"dedup: it is stored, and {other} equals it and must stay"
