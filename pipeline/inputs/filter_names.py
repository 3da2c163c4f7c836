"""Names that filters read, and that no row has: probably misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from pipeline.options.config import Config
from pipeline.options.keeping import Keep
from stages.contract import Row
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


def called_like_a_figure(name: str, where: str) -> UsageError:
    """The error of a name that could mean a figure or a column."""
    return UsageError(
        f"--filter reads the figure {name}, and {where} has a column {name} of its own.",
        f'For the column write "{name}" in double quotes; for the figure add --ignore {name}.',
    )


def require_known(config: Config, rows: Sequence[Row], where: str) -> None:
    """A column that no sampled row has is not one that a sampled row nearly has, and no figure has
    the name of a column.

    Args:
        config: of one source; ``where``: what a message calls the file.

    Raises:
        UsageError: it is, so it is probably misspelt; or it could mean either.
    """
    known: set[str] = set()
    for expression in map(parse, config.source.filter if rows else ()):
        for name in set(expression.figures) - {*config.source.ignore, "margin"}:
            if name not in expression.columns and any(row.get(name) is not None for row in rows):
                raise called_like_a_figure(name, where)
        for path in set(expression.columns) - expression.expected:
            if all(lookup(row, path) is None for row in rows):
                known = known or _paths(rows)
                if difflib.get_close_matches(path, {*known, *FIGURES}, 1, 0.6):
                    raise unknown(expression, path, f"no sampled row of {where}", known)
    keep = Keep.of(config.plan.dedup_keep).column
    if keep and all(lookup(row, keep) is None for row in rows):
        near = difflib.get_close_matches(keep, _paths(rows), 1, 0.6)
        if near:
            raise UsageError(
                f"--dedup-keep compares {keep}, and no sampled row of {where} has a value in it.",
                f"Did you mean {near[0]}?",
            )


def _paths(rows: Sequence[Row], deepest: int = 3) -> set[str]:
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
