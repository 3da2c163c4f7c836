"""TOML files of users: parsed, or refused with a reason, and the line at which each key stands.

``tomllib`` gives no positions, and neither do the libraries that keep a file's layout. Where lines
are asked for, the text is known to be TOML already, so it is enough to tell keys, strings and
brackets apart.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from pathlib import Path
from typing import Any, TypeAlias

from stages.files import regular

LONGEST = 1 << 18  # bytes of a file
DEEPEST = 16  # tables and arrays in one another
# Parsing a dotted key takes time with the square of its number of parts.
_DOTTED = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}"""
)


def read(path: Path) -> dict[str, Any]:
    """The file's table.

    Raises:
        ValueError: it is not UTF-8 or not TOML, or longer or deeper than the limits.
        OSError: it cannot be read.
    """
    return parsed(text_of(path))


def text_of(path: Path) -> str:
    """The file's text.

    Raises:
        ValueError: it is not UTF-8, or longer than the limit.
        OSError: it cannot be read.
    """
    with regular.required(path).open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} bytes")
    return data.decode()


def parsed(text: str) -> dict[str, Any]:
    """The table that a file's text is.

    Raises:
        ValueError: it is not TOML, or deeper than the limit.
    """
    if _DOTTED.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _require_shallow(table)
    return table


def _require_shallow(table: object) -> None:
    level: list[object] = [table]
    for _ in range(DEEPEST):
        inner = [v for v in level if isinstance(v, (dict, list))]
        level = [each for v in inner for each in (v.values() if isinstance(v, dict) else v)]
    if any(isinstance(v, (dict, list)) for v in level):
        raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"


Place: TypeAlias = tuple[str | int, ...]  # keys, and positions in arrays from 0

_SPACE = re.compile(r"(?:[ \t]+|\r?\n|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def lines_of(text: str) -> dict[Place, int]:
    """The line, from 1, of each key, table and array item.

    Args:
        text: a valid TOML file.
    """
    scanner = _Scanner(text)
    scanner.file()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[Place, int] = {}
        self._text = text
        self._at = 0
        self._starts = [match.end() for match in re.finditer("\n", text)]
        self._arrays: dict[Place, int] = {}  # how many tables each array of tables has so far

    def file(self) -> None:
        table: Place = ()
        while self._skip(_SPACE):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)

    def _skip(self, what: re.Pattern[str]) -> bool:
        """Move over what may stand here; whether anything is left."""
        match = what.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at < len(self._text)

    def _take(self, what: re.Pattern[str]) -> str:
        match = what.match(self._text, self._at)
        if match is None:
            raise ValueError(f"no TOML at character {self._at}")
        self._at = match.end()
        return match[0]

    def _note(self, place: Place) -> None:
        self.lines.setdefault(place, bisect_right(self._starts, self._at) + 1)

    def _header(self) -> Place:
        several = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if several else 1
        keys = self._keys()
        end = self._at
        self._at = start
        place: Place = ()
        for number, key in enumerate(keys):
            place = (*place, key)
            self._note(place)
            if several and number == len(keys) - 1:
                self._arrays[place] = self._arrays.get(place, 0) + 1
            if place in self._arrays:
                place = (*place, self._arrays[place] - 1)
                self._note(place)
        self._at = end + (2 if several else 1)
        return place

    def _keys(self) -> list[str]:
        """The parts of a dotted key."""
        keys = []
        while True:
            self._skip(_BLANK)
            if self._text[self._at] in "\"'":
                keys.append(str(tomllib.loads(f"k = {self._take(_STRING)}")["k"]))
            else:
                keys.append(self._take(_BARE))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _entry(self, table: Place) -> None:
        start = self._at
        keys = self._keys()
        end, self._at = self._at, start
        for count in range(1, len(keys) + 1):
            self._note((*table, *keys[:count]))
        self._at = end + 1  # over the sign
        self._skip(_BLANK)
        self._value((*table, *keys))

    def _value(self, place: Place) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._take(_STRING)
        elif first == "[":
            self._items(place)
        elif first == "{":
            self._inline(place)
        else:
            self._take(_SCALAR)

    def _more(self, end: str) -> bool:
        """Move to the next item of an array or an inline table; False behind its end."""
        self._skip(_SPACE)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_SPACE)
        if self._text[self._at] != end:
            return True
        self._at += 1
        return False

    def _items(self, place: Place) -> None:
        self._at += 1
        number = 0
        while self._more("]"):
            self._note((*place, number))
            self._value((*place, number))
            number += 1

    def _inline(self, place: Place) -> None:
        self._at += 1
        while self._more("}"):
            self._entry(place)
