"""Which rows and which of their columns are read at all: ``--where`` and ``--ignore``.

Both look at the row as the file has it, before ``--map`` renames anything.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.contract import Row

_TEXT = re.compile(r"(?P<column>[^=<>!]+?)\s*(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>.*)", re.DOTALL)
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def lookup(row: Row, path: str) -> Any:
    """The value at a dotted path (``answers.0.text``); None where there is none."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list) and key.isascii() and key.isdigit():
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class Condition:
    """One ``--where``: a column, a sign and a value.

    Attributes:
        value: a JSON value where the text is one (``true``, ``1``), else the text.
    """

    column: str
    sign: str
    value: Any

    def holds(self, row: Row) -> bool:
        """Whether a row meets it. A row without the column does not, whatever the sign."""
        found = lookup(row, self.column)
        if found is None:
            return self.sign == "=" and self.value is None
        if self.sign in _ORDER:
            number = _number(found)
            return number is not None and _ORDER[self.sign](number, self.value)
        same = found == self.value and isinstance(found, bool) == isinstance(self.value, bool)
        return same == (self.sign == "=")


def condition(text: str) -> Condition:
    """What ``--where`` says.

    Raises:
        UsageError: it is not COLUMN, a sign and a value.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--where {text!r} is not COLUMN=VALUE.",
            "For example --where label=true, or --where 'score>=4'.",
        )
    column, sign, said = match.group("column", "sign", "value")
    try:
        value = orjson.loads(said)
    except orjson.JSONDecodeError:
        value = said
    if sign in _ORDER and _number(value) is None:
        raise UsageError(
            f"--where {text!r} compares with {said!r}, which is no number.",
            f"Use {column}={said} for a text.",
        )
    return Condition(column, sign, value)


@dataclass(frozen=True, slots=True)
class Selection:
    """What ``--where`` and ``--ignore`` make of a row before anything is renamed in it.

    Attributes:
        where: all of them must hold.
        ignore: columns that are left out; ``messages[].name`` is a key of every object in a list,
            ``tree.**.state`` one of every object in a tree, at any depth.
    """

    where: tuple[Condition, ...] = ()
    ignore: tuple[str, ...] = ()

    def takes(self, row: Row) -> bool:
        """Whether the row is to be used."""
        return all(condition.holds(row) for condition in self.where)

    def read(self, row: Row) -> Row:
        """The row without what is ignored."""
        for path in self.ignore:
            row = _without(row, path)
        return row

    @property
    def decided(self) -> frozenset[str]:
        """Columns that have done their work when the row is taken."""
        return frozenset(condition.column for condition in self.where)


def renamed(row: Row, mapping: Mapping[str, str]) -> Row:
    """The row with the columns that ``--map name=source`` names."""
    if not mapping:
        return row
    taken = {source for source in mapping.values() if source not in mapping}
    named = {name: lookup(row, source) for name, source in mapping.items()}
    return {**{k: v for k, v in row.items() if k not in taken}, **named}


def replaced(row: Row, mapping: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Columns whose place another one takes by ``--map``, so that nothing reads them."""
    for name in mapping.keys() & row.keys():
        if not any(s == name or s.startswith(f"{name}.") for s in mapping.values()):
            yield name, row[name]


def _without(row: Row, path: str) -> Row:
    """The row without what a path names; the row itself is not changed."""
    if path in row:
        return {key: value for key, value in row.items() if key != path}
    here, _, rest = path.partition(".")
    if here == "**":
        return {key: _deep(value, rest) for key, value in _without(row, rest).items()}
    name = here.removesuffix("[]")
    inside = row.get(name)
    if not rest or inside is None:
        return row
    if isinstance(inside, list) and name != here:
        kept: Any = [_without(one, rest) if isinstance(one, dict) else one for one in inside]
        return {**row, name: kept}
    return {**row, name: _without(inside, rest)} if isinstance(inside, dict) else row


def _deep(value: Any, path: str) -> Any:
    """A value without what a path names in any object inside it."""
    if isinstance(value, list):
        return [_deep(one, path) for one in value]
    return _without(value, f"**.{path}") if isinstance(value, dict) else value


def names_something(row: Row, path: str) -> bool:
    """Whether a row has what ``--ignore`` names."""
    return _without(row, path) != row
