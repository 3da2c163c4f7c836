"""Quantiles and histogram of the examples' lengths in tokens; a pair's is its longer side's."""

from __future__ import annotations

import numpy as np

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals

_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
_BINS = 40


def _width(longest: int) -> int:
    """Tokens per bin: 1, 2 or 5 times a power of ten, at most ``_BINS`` bins."""
    least = max(1, longest / _BINS)
    ten = 10 ** int(np.floor(np.log10(least)))
    return next(int(ten * step) for step in (1, 2, 5, 10) if ten * step >= least)


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lengths = np.sort(facts.lengths)
    places = [min(len(lengths) - 1, round(q * (len(lengths) - 1))) for q in _QUANTILES]
    figures = []
    for quantile, place in zip(_QUANTILES, places, strict=True):
        name = {0: "shortest", 0.5: "median", 1: "longest"}.get(quantile, f"{quantile:.0%}")
        detail = f"{quantile:.0%} of {len(lengths)} examples have at most {lengths[place]} tokens"
        figures.append(Figure(name, int(lengths[place]), "tokens", detail))
    width = _width(int(lengths[-1]))
    counts = np.bincount(lengths // width)
    bins = tuple((str(i * width), int(n)) for i, n in enumerate(counts))
    mean = round(float(lengths.mean()), 2)
    figures.append(
        Figure("mean", mean, "tokens", f"bins of {width} tokens, by their start", bins=bins)
    )
    return figures


AUDIT = Audit(
    name="lengths",
    why="these help to choose --max-length, the pack size and the batch size",
    judge=_judge,
)
