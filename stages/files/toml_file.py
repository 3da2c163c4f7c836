"""TOML files of users: parsed, or refused with a reason, and the line at which each key stands.

``tomllib`` gives no positions, and neither do the libraries that keep a file's layout. Where lines
are asked for, the text is known to be TOML already, so it is enough to tell keys, strings and
brackets apart.
"""

import re
import tomllib
from bisect import bisect_right
from collections import deque
from pathlib import Path
from typing import Any, TypeAlias

from stages.files import file_hash

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
    with file_hash.required(path).open("rb") as file:
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

_TOKEN = re.compile(
    r'#[^\n]*|(?P<token>"""(?:\\.|[^\\])*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:\\.|[^"\\\n])*"|'
    r"'[^'\n]*'|[\[\]{}=,\n]|[^\s\[\]{}=,#\"']+)",
    re.DOTALL,
)
_BEHIND_VALUES = ("\n", ",", "]", "}")


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
        starts = [match.end() for match in re.finditer("\n", text)]
        self._left = deque(  # tokens, each with its line
            (found["token"], bisect_right(starts, found.start()) + 1)
            for found in _TOKEN.finditer(text)
            if found["token"]
        )
        self._last: dict[Place, int] = {}  # the number of the latest table of each array of tables

    def file(self) -> None:
        table: Place = ()
        while self._left:
            token = self._left[0][0]
            if token == "\n":
                self._left.popleft()
            elif token == "[":
                table = self._header()
            else:
                self._entry(table)

    def _header(self) -> Place:
        line = self._left.popleft()[1]
        several = self._left[0][0] == "["
        if several:
            self._left.popleft()
        keys = self._keys("]")
        place: Place = ()
        for number, key in enumerate(keys, 1):
            place = (*place, key)
            self.lines.setdefault(place, line)
            if several and number == len(keys):
                self._last[place] = self._last.get(place, -1) + 1
                self._left.popleft()
            if place in self._last:
                place = (*place, self._last[place])
                self.lines.setdefault(place, line)
        return place

    def _keys(self, end: str) -> list[str]:
        """The parts of a dotted key, which ends at a sign."""
        spelled = ""
        while (token := self._left.popleft()[0]) != end:
            spelled += token
        keys, table = [], tomllib.loads(f"{spelled} = 0")
        while isinstance(table, dict):
            ((key, table),) = table.items()
            keys.append(key)
        return keys

    def _entry(self, table: Place) -> None:
        line, place = self._left[0][1], table
        for key in self._keys("="):
            place = (*place, key)
            self.lines.setdefault(place, line)
        self._value(place)

    def _value(self, place: Place) -> None:
        opened, number = self._left.popleft()[0], 0
        while opened == "{" and self._more("}"):
            self._entry(place)
        while opened == "[" and self._more("]"):
            self.lines[*place, number] = self._left[0][1]
            self._value((*place, number))
            number += 1
        while self._left and self._left[0][0] not in _BEHIND_VALUES:
            self._left.popleft()  # the time of a date

    def _more(self, end: str) -> bool:
        """Move to the next item of an array or an inline table; False behind its end."""
        while self._left[0][0] in ("\n", ","):
            self._left.popleft()
        if self._left[0][0] != end:
            return True
        self._left.popleft()
        return False
