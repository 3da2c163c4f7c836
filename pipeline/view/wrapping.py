"""Breaks styled text into lines of a terminal: between words, never inside one.

A word longer than a line stays whole. Text of scripts that are written without blanks is broken
between wide characters, which take two columns each.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TypeVar

_S = TypeVar("_S")
_UNIT = re.compile(r"\n| +|[^ \n]+")
MARKS = "│⟩"  # end a token where its boundaries are drawn; a line may be broken behind one


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _units(text: str) -> Iterator[tuple[str, bool]]:
    """Line ends, blanks and pieces of words, and whether a line may be broken behind each."""
    for unit in _UNIT.findall(text):
        if unit.isascii():
            yield unit, unit.isspace()
            continue
        start = 0
        for at, character in enumerate(unit):
            if character in MARKS or _columns(character) == 2:
                yield unit[start : at + 1], True
                start = at + 1
        if start < len(unit):
            yield unit[start:], False


def wrapped(runs: Iterable[tuple[str, _S]], width: int | None) -> Iterator[list[tuple[str, _S]]]:
    """Lines of runs of one style each; a line end in the text stays at the end of its line.

    Args:
        width: columns of a line, None for any number of them.
    """
    line: list[tuple[str, _S]] = []
    word: list[tuple[str, _S]] = []
    used = longer = 0
    for text, style in runs:
        for unit, ends in _units(text):
            takes = 0 if unit == "\n" else columns_of(unit)
            if width and used and used + longer + takes > width:
                yield line
                line, used = [], 0
            word.append((unit, style))
            longer += takes
            if ends:
                line, used = line + word, used + longer
                word, longer = [], 0
            if unit == "\n":
                yield line
                line, used = [], 0
    if line or word:
        yield line + word


def quoted(word: str) -> str:
    """A word as a shell reads it; what a terminal would obey is escaped, as bash and zsh do."""
    if word.isprintable():
        plain = "'" in word and not set(word) & set('"$`\\!')
        return f'"{word}"' if plain else shlex.quote(word)
    escaped = "".join(c if c.isprintable() and c not in "\\'" else _escape(c) for c in word)
    return f"$'{escaped}'"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
