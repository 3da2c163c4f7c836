"""TOML files of users: parsed, or refused with a reason, and the line at which each key stands.

``tomllib`` gives no positions, and neither do the libraries that keep a file's layout. Where lines
are asked for, each value is replaced by the number of its line, and the file is parsed once more.
"""

import re
import tomllib
from collections.abc import Iterable
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
    r"'[^'\n]*'|\{[ \t]*\}|[\[\]{}=,\n]|"
    r"""[^\s\[\]{}=,#"']+(?:[ ]\d[^\s\[\]{}=,#"']*)?)""",  # a date, and its time
    re.DOTALL,
)
_OWN, _SPELLED = "\0line", r'"\u0000line"'  # the key under which a table has its own line


def lines_of(text: str) -> dict[Place, int]:
    """The line, from 1, of each key, table and array item.

    Args:
        text: a valid TOML file.
    """
    lines: dict[Place, int] = {}
    for key, value in tomllib.loads(_numbered(f"{text}\n")).items():
        _note(value, (key,), lines)
    return lines


def _numbered(text: str) -> str:
    """The file with the numbers of their lines in the place of values. A table has its own as a
    key, and an array as its first item."""
    made: list[str] = []
    opened: list[str] = []  # brackets of arrays and inline tables
    line, value, header = 1, False, False
    for token in (found["token"] for found in _TOKEN.finditer(text) if found["token"]):
        said = token
        if value and token in ("[", "{"):
            opened.append(token)
            value = token == "["
            said = f"[{line}," if value else f"{{{_SPELLED}={line},"
        elif opened and token in ("]", "}"):
            opened.pop()
            value = False
        elif token in (",", "="):
            value = token == "=" or opened[-1] == "["
        elif token == "\n":
            said = f"\n{_SPELLED}={line}\n" if header else token
            value, header = value and bool(opened), False
        elif value:
            said, value = str(line), False
        else:
            header = header or token == "["
        made.append(said)
        line += token.count("\n")
    return "".join(made)


def _note(value: Any, place: Place, lines: dict[Place, int]) -> int:
    """Note the lines in a numbered value; returns the first of them."""
    own: list[Any] = [value]
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        own, inner = [value.pop(_OWN)] if _OWN in value else [], value.items()
    elif isinstance(value, list):  # one of tables that have headers has no number
        own, inner = [value.pop(0)] if isinstance(value[0], int) else [], enumerate(value)
    lines[place] = min([*own, *(_note(one, (*place, key), lines) for key, one in inner)])
    return lines[place]
