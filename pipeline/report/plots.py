"""What the page's charts show of a build: lengths, packs, sources, losses, shares of audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.builds.build import Build
from pipeline.report import charts
from pipeline.report.charts import Bars, Entry, Histogram
from pipeline.report.drawing import Shards, visible
from stages.columns import list_parts, numbers, whole
from stages.errors import counted
from stages.findings import AuditResult, Audits
from stages.tokens import layouts

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


def _audit(audits: Audits, wanted: str) -> AuditResult | None:
    return next((audit for audit in audits.audits if audit.name == wanted), None)


def lengths(audits: Audits) -> Histogram | None:
    """A histogram of the examples' lengths, from the bins of the audit ``lengths``."""
    audit = _audit(audits, "lengths")
    figures = audit.figures if audit else ()
    bins = next((figure.bins for figure in figures if figure.bins), ())
    if not bins:
        return None
    # A bin's label is its start, so the second one is the width of all.
    width = int(bins[1][0]) if len(bins) > 1 else int(bins[0][0]) or 100
    marks = {_MARKS[one.name]: one.value for one in figures if one.name in _MARKS}
    return charts.histogram([count for _, count in bins], width, "tokens", marks)


def sources(build: Build) -> Bars | None:
    """The share of each source, or of each input where sources have no names; None for only one."""
    if build.manifest.sources:
        entries = [
            Entry(
                name(one.name),
                one.share,
                note="has no more" if one.short else "",
                wanted=one.wanted_share,
            )
            for one in build.manifest.sources
        ]
        return charts.bars(entries, shares=True)
    audit = _audit(build.audits, "sources")
    figures = [one for one in audit.figures if one.unit == "share"] if audit else []
    if len(figures) < 2:
        return None
    figures.sort(key=lambda figure: -figure.value)
    return charts.bars([Entry(name(one.name), one.value) for one in figures], shares=True)


def losses(rows: Mapping[str, int], examples: Mapping[str, int]) -> Bars | None:
    """Refused rows by code, the most first; of rows that kept others, their refused examples."""
    counts = {code: rows.get(code, 0) or examples.get(code, 0) for code in (*rows, *examples)}
    if not counts:
        return None
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return charts.bars([Entry(visible(code), count) for code, count in ordered], shares=False)


@dataclass(frozen=True, slots=True)
class Box:
    """An example of a pack, in percent of its room."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class PackingPlot:
    """How full the packs of the train split are.

    Attributes:
        packs: the boxes of the first few.
    """

    packs: tuple[tuple[Box, ...], ...]
    fill: Histogram


def packing(shards: Shards) -> PackingPlot | None:
    """Boxes of packs and a histogram of their fill; None in other layouts."""
    build = shards.build
    if not layouts.load(build.manifest.layout).packs:
        return None
    room = build.manifest.max_length
    counts = np.zeros(FILL_BINS, np.int64)
    drawn: list[tuple[Box, ...]] = []
    for table in build.splits["train"].tables():
        for batch in table.to_batches():
            fill = np.diff(numbers(batch.column("input_ids"))[0])
            bins = np.minimum(fill * FILL_BINS // room, FILL_BINS - 1)  # a full pack's is the last
            counts += np.bincount(bins, minlength=FILL_BINS)
            if len(drawn) < PACKS:
                drawn += _boxes(batch, room, min(len(fill), PACKS - len(drawn)))
    shown = charts.histogram(counts.tolist(), 100 / FILL_BINS, "% full")
    return PackingPlot(tuple(drawn), shown)


def _boxes(batch: Any, room: int, packs: int) -> list[tuple[Box, ...]]:
    at, sizes = numbers(whole(batch.column("seq_lengths")))
    names = list_parts(whole(batch.column("row_ids")))[1]
    drawn = []
    for row in range(packs):
        start, boxes = 0, []
        first, last = int(at[row]), int(at[row + 1])
        for i in range(first, min(last, first + OF_A_PACK)):
            size = int(sizes[i])
            title = f"{name(names[i].as_py())}: {counted(size, 'token')}"
            boxes.append(Box(round(100 * start / room, 3), round(100 * size / room, 3), title))
            start += size
        rest = int(sizes[first + len(boxes) : last].sum())
        if rest:
            title = f"{last - first - len(boxes):,} more: {counted(rest, 'token')}"
            boxes.append(Box(round(100 * start / room, 3), round(100 * rest / room, 3), title))
        drawn.append(tuple(boxes))
    return drawn
