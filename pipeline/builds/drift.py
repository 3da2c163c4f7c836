"""Compares a build with the one that it replaces; for the terminal and ``run.json`` only.

No other file depends on the replaced build, so equal builds stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.builds.build import Build
from pipeline.manifest.records import Change
from stages.errors import PipelineError

MOST = 8  # lines on the terminal
NOTABLE = 0.1  # relative change that is worth a line on the terminal


def _numbers(build: Build) -> dict[str, float]:
    rows, tokens = build.manifest.rows, build.manifest.tokens
    numbers: dict[str, float] = {
        "rows.in": rows.in_,
        "rows.used": rows.used,
        "rows.rejected": rows.rejected,
        "rows.duplicates_found": rows.duplicates_found,
        "tokens.total": tokens.total,
        "tokens.trained": tokens.trained,
        "tokens.padding": tokens.padding,
        "tokens.truncated": tokens.truncated,
    }
    for audit in build.audits.audits:
        if audit.name != "sources":
            numbers |= {f"{audit.name}.{figure.name}": figure.value for figure in audit.figures}
    return numbers


def _relative(before: float, after: float) -> float | None:
    return round(after / before - 1, 6) if before else None


def drift(target: Path, staged: Build) -> dict[str, Change] | None:
    """Every number that differs from the build in ``target``; None if no build can be read there.

    Args:
        staged: the build that replaces it, with its audits.
    """
    try:
        return between(Build.open(target), staged)
    except PipelineError:
        return None


def between(one: Build, other: Build) -> dict[str, Change]:
    """Every number that differs from one build to another.

    Raises:
        DataError: a file of one is damaged, or it is an export, which has no audits.
    """
    before, after = _numbers(one), _numbers(other)
    return {
        name: Change(
            before.get(name),
            after.get(name),
            _relative(before.get(name, 0), after.get(name, 0)),
        )
        for name in (*after, *(name for name in before if name not in after))
        if before.get(name) != after.get(name)
    }


def lines(changes: Mapping[str, Change] | None) -> list[str]:
    """The notable changes, one line each."""
    if changes is None:
        return []
    notable = [
        f"drift     {name}: {_text(entry.before)} -> {_text(entry.after)}"
        + (f" ({entry.change:+.1%})" if entry.change is not None else "")
        for name, entry in changes.items()
        if entry.change is None or abs(entry.change) >= NOTABLE
    ]
    more = len(notable) - MOST
    return notable[:MOST] + ([f"drift     {more} more in run.json"] if more > 0 else [])


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"
