"""What changed against the build that is being replaced; for people and ``run.json`` alone.

Equal builds stay equal: no byte of a build depends on what stood in its place before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from pipeline.audits import AUDITS
from pipeline.publish import MANIFEST

MOST = 8  # lines on the terminal
NOTABLE = 0.1  # relative change that is worth a line on the terminal


def _numbers(described: dict[str, Any], audits: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    rows, tokens = described["rows"], described["tokens"]
    for name in ("in", "used", "rejected", "duplicates_found"):
        found[f"rows.{name}"] = rows[name]
    for name in ("total", "trained", "padding", "truncated"):
        found[f"tokens.{name}"] = tokens[name]
    for audit in audits["audits"]:
        if audit["name"] != "sources":
            for figure in audit["figures"]:
                found[f"{audit['name']}.{figure['name']}"] = figure["value"]
    return found


def _load(folder: Path) -> dict[str, float] | None:
    try:
        described = orjson.loads((folder / MANIFEST).read_bytes())
        return _numbers(described, orjson.loads((folder / AUDITS).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _change(before: float, after: float) -> float | None:
    return round(after / before - 1, 6) if before else None


def drift(target: Path, folder: Path, described: dict[str, Any]) -> dict[str, Any] | None:
    """Every number that differs from the build in ``target``; None when there is none to read.

    Args:
        folder: the staged build, audits included.
    """
    before = _load(target)
    if before is None:
        return None
    after = _numbers(described, orjson.loads((folder / AUDITS).read_bytes()))
    return {
        name: {
            "before": before.get(name),
            "after": after.get(name),
            "change": _change(before.get(name, 0), after.get(name, 0)),
        }
        for name in (*after, *(name for name in before if name not in after))
        if before.get(name) != after.get(name)
    }


def lines(found: dict[str, Any] | None) -> list[str]:
    """The notable changes, one line each."""
    if found is None:
        return []
    notable = [
        (name, entry)
        for name, entry in found.items()
        if entry["change"] is None or abs(entry["change"]) >= NOTABLE
    ]
    found_lines = [
        f"drift     {name}: {_text(entry['before'])} -> {_text(entry['after'])}"
        + (f" ({entry['change']:+.1%})" if entry["change"] is not None else "")
        for name, entry in notable
    ]
    more = len(found_lines) - MOST
    return found_lines[:MOST] + ([f"drift     {more} more in run.json"] if more > 0 else [])


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"
