"""Computes the bars of the page's plots, so that the page needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.manifest.records import Audits
from pipeline.view.drawing import Shards
from stages import layouts
from stages.columns import list_parts, numbers, whole

PACKS = 24  # packs that are drawn, from the first
FILL_BINS = 20


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram; ``height`` is in percent of the highest."""

    x: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars over a labelled axis, in percent of the plot's width."""

    bars: tuple[Bar, ...]
    ticks: tuple[str, ...]
    unit: str
    highest: int


def histogram(counts: Sequence[int], width: float, unit: str) -> Histogram:
    """Bars of equal width.

    Args:
        width: what one bin spans, in ``unit``.
    """
    highest = max(counts, default=0) or 1
    step = 100 / max(1, len(counts))
    bars = tuple(
        Bar(
            x=round(i * step, 3),
            width=round(step * 0.92, 3),
            height=round(100 * count / highest, 3),
            title=f"{i * width:g} to {(i + 1) * width:g} {unit}: {count}",
        )
        for i, count in enumerate(counts)
        if count
    )
    end = len(counts) * width
    ticks = tuple(f"{round(end * part)}" for part in (0, 0.25, 0.5, 0.75, 1))
    return Histogram(bars, ticks, unit, highest)


def lengths(audits: Audits) -> Histogram | None:
    """A histogram of the examples' lengths, from the bins of the audit ``lengths``."""
    lengths_audit = next((audit for audit in audits.audits if audit.name == "lengths"), None)
    bins = (
        next((figure.bins for figure in lengths_audit.figures if figure.bins), ())
        if lengths_audit
        else ()
    )
    if not bins:
        return None
    # A bin's label is its start, so the second one is the width of all.
    width = int(bins[1][0]) if len(bins) > 1 else int(bins[0][0]) or 1
    return histogram([count for _, count in bins], width, "tokens")


@dataclass(frozen=True, slots=True)
class Pack:
    """One pack: the share of ``max_length`` that each of its examples takes, in percent."""

    number: int
    tokens: int
    examples: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class PackingPlot:
    """How full the packs of the train split are."""

    packs: tuple[Pack, ...]
    count: int
    fill: Histogram


def packing(shards: Shards) -> PackingPlot | None:
    """Pack strips and a histogram of their fill; None in other layouts."""
    build = shards.build
    if not layouts.load(build.manifest.layout).packs:
        return None
    room = build.manifest.max_length
    fills: list[Any] = []
    drawn: list[Pack] = []
    for shard in build.splits["train"].shards:
        for batch in shards.table(shard).to_batches():
            stored = np.diff(numbers(batch.column("input_ids"))[0])
            fills.append(stored)
            if len(drawn) < PACKS:
                drawn += _strips(batch, stored.tolist(), room=room, first=len(drawn))
    fill = np.concatenate(fills)
    places = np.minimum(fill * FILL_BINS // room, FILL_BINS - 1)  # a full pack is in the last bin
    counts = np.bincount(places, minlength=FILL_BINS).tolist()
    return PackingPlot(
        tuple(drawn[:PACKS]), len(fill), histogram(counts, 100 / FILL_BINS, "% full")
    )


def _strips(batch: Any, stored: list[int], room: int, first: int) -> list[Pack]:
    at, sizes = numbers(whole(batch.column("seq_lengths")))
    names = list_parts(whole(batch.column("row_ids")))[1]
    strips = []
    for row in range(min(len(stored), PACKS - first)):
        span = range(int(at[row]), int(at[row + 1]))
        examples = tuple(
            (round(100 * int(sizes[i]) / room, 4), f"{names[i].as_py()}: {sizes[i]} tokens")
            for i in span
        )
        strips.append(Pack(first + row, stored[row], examples))
    return strips
