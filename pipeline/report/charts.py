"""Charts as numbers: the page draws them as SVG with lengths in percent, so it needs no script.

Each has a sentence for those who do not see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.report import scales
from pipeline.report.scales import Scale, Tick

BINS = 64  # bars of a histogram; neighbours are joined until there are no more
BARS = 24  # bars of a list; the rest is one bar


@dataclass(frozen=True, slots=True)
class Column:
    """An upright bar, in percent of the plot; ``title`` says what it counts."""

    x: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Upright bars over two axes.

    Attributes:
        marks: lines across the plot, by name.
        text: what the chart shows, in a sentence.
    """

    columns: tuple[Column, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    unit: str
    log: bool
    marks: Mapping[str, float]
    text: str


def _joined(counts: Sequence[int], most: int) -> tuple[list[int], int]:
    """At most so many counts, each the sum of as many neighbours."""
    together = -(-len(counts) // most)
    return [sum(counts[at : at + together]) for at in range(0, len(counts), together)], together


def _grouped(value: float) -> str:
    return f"{value:,g}" if value < 1e5 else f"{value:,.0f}"


def histogram(
    counts: Sequence[int], width: float, unit: str, marks: Mapping[str, float] | None = None
) -> Histogram:
    """Bars of equal width.

    Args:
        width: what one count spans, in ``unit``; ``marks``: values along the axis, by name.
    """
    joined, together = _joined(counts, BINS)
    width *= together
    across, up = Scale(max(width * len(joined), 1e-9)), scales.of_counts(joined)
    columns = tuple(
        Column(
            x=across.percent(at * width),
            width=round(0.92 * across.percent(width), 3),
            height=up.percent(count),
            title=f"{_grouped(at * width)} to {_grouped((at + 1) * width)} {unit}: {count:,}",
        )
        for at, count in enumerate(joined)
        if count
    )
    top = max(range(len(joined)), key=joined.__getitem__, default=0)
    text = (
        f"{sum(joined):,} in {len(joined)} bars from 0 to {_grouped(across.end)} {unit}; the "
        f"highest has {max(joined, default=0):,}, from {_grouped(top * width)} {unit} on."
    )
    return Histogram(
        columns,
        x=across.ticks(),
        y=up.ticks(),
        unit=unit,
        log=up.log,
        marks={name: min(100.0, across.percent(at)) for name, at in (marks or {}).items()},
        text=text,
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """A lying bar: its name, its length in percent of the longest, and its value as text.

    Attributes:
        wanted: where the bar should end, in percent; None where nothing was asked for.
    """

    name: str
    length: float
    value: str
    note: str = ""
    wanted: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Lying bars over one axis.

    Attributes:
        axis: ticks; their values are counts, or shares from 0 to 1.
    """

    bars: tuple[Bar, ...]
    axis: tuple[Tick, ...]
    shares: bool
    log: bool
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What a lying bar stands for: a count, or a share from 0 to 1."""

    name: str
    value: float
    note: str = ""
    wanted: float | None = None


def bars(entries: Sequence[Entry], *, shares: bool) -> Bars:
    """A bar for each entry, in their order, and one for all those that are too many."""
    shown = list(entries[:BARS])
    rest = entries[BARS:]
    if rest:
        shown.append(Entry(f"{len(rest):,} others", sum(one.value for one in rest)))
    scale = _scale(shown, shares=shares)
    drawn = tuple(
        Bar(
            one.name,
            length=scale.percent(one.value),
            value=f"{one.value:.1%}" if shares else f"{one.value:,.0f}",
            note=one.note,
            wanted=None if one.wanted is None else scale.percent(one.wanted),
        )
        for one in shown
    )
    text = ", ".join(f"{bar.name} {bar.value}" for bar in drawn[:6])
    more = f" and {len(drawn) - 6} more" if len(drawn) > 6 else ""
    return Bars(drawn, scale.ticks(), shares=shares, log=scale.log, text=f"{text}{more}.")


def _scale(entries: Sequence[Entry], *, shares: bool) -> Scale:
    if not shares:
        return scales.of_counts([round(one.value) for one in entries])
    return scales.up_to(max(max(one.value, one.wanted or 0) for one in entries))
