"""A row that remembers which of its columns were read.

A format reads a row by its columns; a column that it did not read is not in the example. So
unread columns are noticed without a list of the columns that each format knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stages.contract import Row

if TYPE_CHECKING:
    pass


# Columns that are passed on whole: their keys are those of the tool or the call.
_PASSED_ON = frozenset(("tools", "functions", "tool_calls", "function_call"))
EMPTY: tuple[Any, ...] = (None, "", [], {})  # values that are the same as none


class Watched(dict[str, Any]):
    """A row, or an object inside one. ``row[key]`` and ``row.get(key)`` count as reading.

    ``peek`` looks at a value without counting as reading.
    """

    __slots__ = ("_keys", "_lists", "_read")

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._read: set[str] = set()
        self._lists: set[str] = set()  # columns with a list of objects that are watched
        self._keys: set[tuple[str, str]] = set()

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if key in self._read:  # what is inside is watched already
            return value
        self._read.add(key)
        if key in _PASSED_ON:
            return value
        if type(value) is dict:
            value = self[key] = Watched(value)
        elif type(value) is list and _has_objects(value):
            value = self[key] = [Watched(one) if type(one) is dict else one for one in value]
            self._lists.add(key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a column, which counts as read."""
        if key not in self:
            return default
        return self[key]

    @property
    def read_columns(self) -> frozenset[str]:
        """The columns that were read."""
        return frozenset(self._read)

    def read_keys(self, column: str) -> frozenset[str]:
        """The keys of a column's turns that were read besides role and text."""
        return frozenset(key for name, key in self._keys if name == column)

    def unread(self, before: str = "") -> Iterator[tuple[str, Any]]:
        """Path and value of everything that was not read and is not empty.

        An object of which no key was read counts as used whole. In a list of objects, a key counts
        as read when it was read in one of them; of others, the path comes once for each object.
        """
        if not self._read and before:
            return
        for key, value in self.items():
            if key not in self._read:
                if value not in EMPTY:
                    yield f"{before}{key}", value
            elif isinstance(value, Watched):
                yield from value.unread(f"{before}{key}.")
            elif key in self._lists:
                yield from _unread_in(value, f"{before}{key}[].")


class Overlaid(Watched):
    """A row with the values of an object inside it on top; a read counts where the value is."""

    __slots__ = ("_over", "_under")

    def __init__(self, under: Row, over: Row) -> None:
        super().__init__({**under, **over})
        self._under, self._over = under, over

    def __getitem__(self, key: str) -> Any:
        return self._over[key] if key in self._over else self._under[key]


def peek(row: Row, key: str) -> Any:
    """The value of a column, which does not count as read; None where there is none."""
    return dict.get(row, key)


def read_key(row: Row, column: str, key: str) -> None:
    """Count a key of a column's turns as read; turns are not watched themselves."""
    if isinstance(row, Watched):
        row._keys.add((column, key))


def _has_objects(values: list[Any]) -> bool:
    """Whether a list has objects that are no turns; keys of turns are in ``Message.fields``.

    Rows have thousands of token ids, so a list is searched without a step of Python for each item.
    """
    if dict not in map(type, values):
        return False
    first = next(one for one in values if type(one) is dict)
    return "role" not in first and "from" not in first


def _unread_in(values: list[Any], before: str) -> Iterator[tuple[str, Any]]:
    rows = [one for one in values if isinstance(one, Watched)]
    read = set().union(*(row._read for row in rows))
    for row in rows:
        for path, value in row.unread(before):
            if path.removeprefix(before) not in read:
                yield path, value
