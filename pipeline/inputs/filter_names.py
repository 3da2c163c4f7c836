"""Names that filters read, and that no row has: probably misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.options.config import Config
from stages.errors import UsageError
from stages.rows.expressions import FIGURES, Expression, parse
from stages.rows.selection import lookup


def unknown(expression: Expression, path: str, where: str, known: Iterable[str]) -> UsageError:
    """The error of a name that nothing has."""
    near = difflib.get_close_matches(path, sorted({*known, *FIGURES}), 3, 0.6)
    way = f"Did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"--filter {expression.text!r} reads {path}, and {where} has a value in it.",
        f"{way}Figures of an example are {', '.join(FIGURES)}. Where the column may be absent "
        f"everywhere, write {path} IS NULL, or coalesce({path}, 0).",
    )


def require_known(config: Config, rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """A name that no sampled row has is not one that a sampled row nearly has.

    Args:
        config: of one source; ``where``: what a message calls the rows, after "no".

    Raises:
        UsageError: it is, so it is probably misspelt.
    """
    known: set[str] = set()
    for expression in map(parse, config.source.filter if rows else ()):
        for path in set(expression.columns) - expression.expected:
            if all(lookup(dict(row), path) is None for row in rows):
                known = known or _paths(rows)
                if difflib.get_close_matches(path, {*known, *FIGURES}, 1, 0.6):
                    raise unknown(expression, path, where, known)


def _paths(rows: Sequence[Mapping[str, Any]], deepest: int = 3) -> set[str]:
    """The paths of all columns of some raw rows, with those inside of objects."""
    found: set[str] = set()
    waiting = [("", row, 1) for row in rows]
    while waiting:
        before, row, depth = waiting.pop()
        for key, value in row.items():
            path = f"{before}{key}"
            found.add(path)
            if isinstance(value, dict) and depth < deepest:
                waiting.append((f"{path}.", value, depth + 1))
    return found
