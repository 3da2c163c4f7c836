"""What changed against the build before, for a page that lies outside its build.

``run.json`` has it for the build that was replaced; two builds that are there are compared again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.builds import drift
from pipeline.builds.build import Build
from pipeline.manifest.records import Change
from pipeline.report import charts
from pipeline.report.charts import Bars, Entry
from pipeline.report.template import cut, number

SHOWN = 60  # numbers, those that changed most first
DRAWN = 12


@dataclass(frozen=True, slots=True)
class Before:
    """Numbers of another build and of this one; ``of`` says in a sentence which other."""

    of: str
    numbers: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class Line:
    """One number that changed, as text; ``notable``: by a tenth or more, or from nothing."""

    name: str
    before: str
    after: str
    change: str
    notable: bool


@dataclass(frozen=True, slots=True)
class Section:
    """The section of the page; ``count``: numbers that changed, of which ``rows`` are shown."""

    of: str
    rows: tuple[Line, ...]
    count: int
    bars: Bars | None


def recorded(build: Build) -> Before | None:
    """Against the build that this one replaced; None where it replaced none."""
    changed = build.run.drift
    return None if changed is None else Before("Against the build that it replaced.", changed)


def against(build: Build, other: Build) -> Before:
    """Against a build that is there."""
    text = f"Against build {other.manifest.build_id} in {other.shown()}."
    return Before(text, drift.between(other, build))


def _weight(change: Change) -> float:
    return float("inf") if change.change is None else abs(change.change)


def _text(value: float | None) -> str:
    if value is None:
        return "none"
    return number(int(value)) if value == int(value) else f"{value:.4g}"


def _line(name: str, one: Change) -> Line:
    change = "from nothing" if one.change is None else f"{one.change:+.1%}"
    if one.after is None:
        change = "gone"
    return Line(
        cut(name, 120), _text(one.before), _text(one.after), change, _weight(one) >= drift.NOTABLE
    )


def section(before: Before) -> Section:
    """The numbers that differ, those that changed most first."""
    ordered = sorted(before.numbers.items(), key=lambda entry: -_weight(entry[1]))
    drawn = [
        Entry(f"{cut(name, 60)} {'▲' if one.change > 0 else '▼'}", abs(one.change))
        for name, one in ordered
        if one.change
    ]
    return Section(
        cut(before.of),
        tuple(_line(name, one) for name, one in ordered[:SHOWN]),
        count=len(ordered),
        bars=charts.bars(drawn[:DRAWN], shares=True) if drawn else None,
    )
