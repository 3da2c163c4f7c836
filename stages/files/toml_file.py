"""TOML files of users: parsed, or refused with a reason, whatever is in them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

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
