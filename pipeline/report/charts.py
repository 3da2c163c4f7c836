"""Charts as numbers: the page draws them as SVG with lengths in percent, so it needs no script.

Each has a sentence for those who do not see it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.builds.build import Build
from pipeline.report.drawing import Shards, visible
from stages.columns import list_parts, numbers, whole
from stages.errors import counted
from stages.findings import Audits, Figure
from stages.tokens import layouts

# What the page's charts show of a build: lengths, packs, sources, losses, shares of audits.


PACKS = 24  # packs that are drawn, from the first
OF_A_PACK = 60  # examples that are drawn of each; the rest is one box
FILL_BINS = 20
NAME = 60  # characters of a name in a chart
_MARKS = {"median": "median", "95%": "95 %"}  # of the lengths


def name(text: str) -> str:
    """A name as a chart shows it: both ends of a long one."""
    if len(text) > NAME:
        text = f"{text[: NAME // 2]}…{text[1 - NAME // 2 :]}"
    return visible(text)


def _figures(audits: Audits, wanted: str) -> tuple[Figure, ...]:
    return next((audit.figures for audit in audits.audits if audit.name == wanted), ())


def lengths(audits: Audits) -> "Histogram | None":
    """A histogram of the examples' lengths, from the bins of the audit ``lengths``."""
    figures = _figures(audits, "lengths")
    bins = next((figure.bins for figure in figures if figure.bins), ())
    if not bins:
        return None
    # A bin's label is its start, so the second one is the width of all.
    width = int(bins[1][0]) if len(bins) > 1 else int(bins[0][0]) or 100
    marks = {_MARKS[one.name]: one.value for one in figures if one.name in _MARKS}
    return histogram([count for _, count in bins], width, "tokens", marks)


def sources(build: Build) -> "Bars | None":
    """The share of each source, or of each input where sources have no names; None for only one."""
    if build.manifest.sources:
        entries = [
            Entry(name(one.name), one.share, "has no more" if one.short else "", one.wanted_share)
            for one in build.manifest.sources
        ]
        return bars(entries, shares=True)
    figures = [one for one in _figures(build.audits, "sources") if one.unit == "share"]
    if len(figures) < 2:
        return None
    figures.sort(key=lambda figure: -figure.value)
    return bars([Entry(name(one.name), one.value) for one in figures], shares=True)


def losses(rows: Mapping[str, int], examples: Mapping[str, int]) -> "Bars | None":
    """Refused rows by code, the most first; of rows that kept others, their refused examples."""
    counts = {code: rows.get(code, 0) or examples.get(code, 0) for code in (*rows, *examples)}
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return bars([Entry(visible(code), count) for code, count in ordered], shares=False)


class PackingPlot(NamedTuple):
    """How full the packs of the train split are.

    Attributes:
        packs: the boxes of the first few.
    """

    packs: tuple[tuple["Column", ...], ...]
    fill: "Histogram"


def packing(shards: Shards) -> PackingPlot | None:
    """Boxes of packs and a histogram of their fill; None in other layouts."""
    build = shards.build
    if not layouts.load(build.manifest.layout).packs:
        return None
    room = build.manifest.max_length
    counts = np.zeros(FILL_BINS, np.int64)
    drawn: list[tuple[Column, ...]] = []
    for table in build.splits["train"].tables():
        for batch in table.to_batches():
            fill = np.diff(numbers(batch.column("input_ids"))[0])
            bins = np.minimum(fill * FILL_BINS // room, FILL_BINS - 1)  # a full pack's is the last
            counts += np.bincount(bins, minlength=FILL_BINS)
            if len(drawn) < PACKS:
                drawn += _boxes(batch, room, min(len(fill), PACKS - len(drawn)))
    return PackingPlot(tuple(drawn), histogram(counts.tolist(), 100 / FILL_BINS, "% full"))


def _boxes(batch: Any, room: int, packs: int) -> list[tuple["Column", ...]]:
    at, sizes = numbers(whole(batch.column("seq_lengths")))
    names = list_parts(whole(batch.column("row_ids")))[1]
    drawn = []
    for row in range(packs):
        start, boxes = 0, []
        first, last = int(at[row]), int(at[row + 1])
        for i in range(first, min(last, first + OF_A_PACK)):
            size = int(sizes[i])
            title = f"{name(names[i].as_py())}: {counted(size, 'token')}"
            boxes.append(Column(round(100 * start / room, 3), round(100 * size / room, 3), title))
            start += size
        rest = int(sizes[first + len(boxes) : last].sum())
        if rest:
            title = f"{last - first - len(boxes):,} more: {counted(rest, 'token')}"
            boxes.append(Column(round(100 * start / room, 3), round(100 * rest / room, 3), title))
        drawn.append(tuple(boxes))
    return drawn


TAIL = 20  # a bar this many times lower than the highest can hardly be seen on a linear axis
_NICE = (1, 2, 2.5, 5, 10)
_SMALLEST = 1e-3  # end of an axis of shares
_FOOT = 0.5  # where a logarithmic axis begins, so that a bar of 1 has a height


class Tick(NamedTuple):
    """A line of the grid: how far along the axis it is, in percent, and its value."""

    at: float
    value: float


class Scale(NamedTuple):
    """An axis from nothing to ``end``.

    Attributes:
        log: logarithmic, for counts of 1 and more.
    """

    end: float
    log: bool = False

    def percent(self, value: float) -> float:
        """How far along the axis a value is, 0 to 100."""
        if not self.log:
            return round(100 * value / self.end, 3)
        if value < _FOOT:
            return 0.0
        return round(100 * math.log(value / _FOOT) / math.log(self.end / _FOOT), 3)

    def ticks(self, count: int = 4) -> tuple[Tick, ...]:
        """About so many round values, from the first line of the grid to the end."""
        if self.log:
            powers = range(round(math.log10(self.end)) + 1)
            values = [10.0**power for power in powers][:: 1 + len(powers) // 6]
        else:
            step = _step(self.end / count)
            values = [step * at for at in range(math.floor(self.end / step + 1e-9) + 1)]
        return tuple(Tick(self.percent(value), value) for value in values)


def _step(least: float) -> float:
    """The first round number that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return float(next(nice for nice in _NICE if nice * power >= least * (1 - 1e-9)) * power)


def of_counts(counts: Iterable[int]) -> Scale:
    """The axis of a histogram's counts: logarithmic where a linear one would hide its tail."""
    present = [count for count in counts if count]
    highest = max(present, default=1)
    if present and highest > TAIL * min(present):
        return Scale(10.0 ** math.ceil(math.log10(highest)), log=True)
    return up_to(highest, least=1.0)


def up_to(highest: float, least: float = 0.0) -> Scale:
    """A linear axis to the first line of its grid that is not below the highest value.

    Args:
        least: between two lines; counts have no fractions.
    """
    step = max(least, _step(max(highest, _SMALLEST) / 4))
    return Scale(step * max(1, math.ceil(highest / step - 1e-9)))


BINS = 64  # bars of a histogram; neighbours are joined until there are no more
BARS = 24  # bars of a list; the rest is one bar


class Column(NamedTuple):
    """An upright bar, in percent of the plot, or an example of a pack, in percent of its room;
    ``title`` says what it counts."""

    x: float
    width: float
    title: str
    height: float = 100.0


class Histogram(NamedTuple):
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
    across, up = Scale(max(width * len(joined), 1e-9)), of_counts(joined)
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


class Entry(NamedTuple):
    """A lying bar.

    Attributes:
        value: a count, or a share from 0 to 1; ``wanted``: where the bar should end; None where
            nothing was asked for.
    """

    name: str
    value: float
    note: str = ""
    wanted: float | None = None


class Bars(NamedTuple):
    """Lying bars over one axis, whose values are counts, or shares from 0 to 1."""

    bars: tuple[Entry, ...]
    scale: Scale
    shares: bool


def bars(entries: Sequence[Entry], *, shares: bool) -> Bars:
    """A bar for each entry, in their order, and one for all those that are too many."""
    shown, rest = list(entries[:BARS]), entries[BARS:]
    if rest:
        shown.append(Entry(f"{len(rest):,} others", sum(one.value for one in rest)))
    highest = max(max(one.value, one.wanted or 0) for one in shown)
    scale = up_to(highest) if shares else of_counts([round(one.value) for one in shown])
    return Bars(tuple(shown), scale, shares)
