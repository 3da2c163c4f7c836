"""Texts of the data and of options as Markdown: none of them can be markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#|!~&])")


def plain(text: object) -> str:
    """A text on one line, without markup."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def code(text: object) -> str:
    """A text in a code span, on one line; backticks in it end nothing."""
    inner = " ".join(str(text).split()).replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", inner)), default=0))
    space = " " if "`" in inner else ""
    return f"{fence}{space}{inner}{space}{fence}"


def block(text: str, language: str) -> str:
    """Lines of a program or a file."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: int) -> str:
    """``1,234,567``."""
    return f"{value:,}"
