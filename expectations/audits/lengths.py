"""Quantiles and histogram of the examples' lengths in tokens; a pair's is its longer side's."""

from __future__ import annotations

import numpy as np

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals
from stages.counted import counted

_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
_BINS = 40


def _width(longest: int) -> int:
    """Tokens per bin: 1, 2 or 5 times a power of ten, at most ``_BINS`` bins."""
    least = max(1, longest / _BINS)
    ten = 10 ** int(np.floor(np.log10(least)))
    return next(int(ten * step) for step in (1, 2, 5, 10) if ten * step >= least)


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lengths, counts = facts.lengths
    upto = np.cumsum(counts)
    total = int(upto[-1])
    places = [min(total - 1, round(q * (total - 1))) for q in _QUANTILES]
    figures = []
    for quantile, place in zip(_QUANTILES, places, strict=True):
        name = {0: "shortest", 0.5: "median", 1: "longest"}.get(quantile, f"{quantile:.0%}")
        length = int(lengths[np.searchsorted(upto, place, side="right")])
        detail = (
            f"{quantile:.0%} of {counted(total, 'example')} with at most {counted(length, 'token')}"
        )
        figures.append(Figure(name, length, "tokens", detail))
    width = _width(int(lengths[-1]))
    binned = np.bincount(lengths // width, counts).astype(np.int64)
    bins = tuple((str(i * width), int(n)) for i, n in enumerate(binned))
    mean = round(int((lengths * counts).sum()) / total, 2)
    figures.append(
        Figure(
            "mean", mean, "tokens", f"bins of {counted(width, 'token')}, by their start", bins=bins
        )
    )
    return figures


AUDIT = Audit(
    name="lengths",
    why="these help to choose --max-length, the pack size and the batch size",
    judge=_judge,
)
