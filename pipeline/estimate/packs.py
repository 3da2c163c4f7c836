"""How many packs a build would have, and how full, at several lengths: from a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.estimate.forecast import Forecast
from stages import layouts, packing

MAX_LENGTHS = (2048, 4096, 8192, 16384, 32768)
PLANNED = 50_000  # examples that the packing table is worked out on


def packing_table(estimate: Forecast) -> list[dict[str, Any]]:
    """For each length: examples above it, packs of the whole build, and how full they are."""
    lengths = estimate.sampled.lengths
    packs = any(layouts.load(name).packs for name in estimate.recipe.task.layouts)
    table: list[dict[str, Any]] = []
    profile = estimate.recipe.model.profile
    limits = {*MAX_LENGTHS, estimate.recipe.config.plan.longest_example}
    if profile.pair is not None:  # an encoder has no more positions
        limits = {limit for limit in limits if limit <= profile.context_length}
    for limit in sorted(limits):
        fitting = lengths[lengths <= limit]
        entry: dict[str, Any] = {
            "max_length": limit,
            "too_long": round(1 - len(fitting) / max(len(lengths), 1), 6),
            "packs": None,
            "efficiency": None,
        }
        if packs and len(fitting):
            wanted = max(1, round(estimate.examples * len(fitting) / len(lengths)))
            planned = np.resize(fitting, min(wanted, PLANNED))  # repeats the sample to that size
            made = int(packing.plan(planned, limit).max()) + 1
            entry["packs"] = max(1, round(made * wanted / len(planned)))
            entry["efficiency"] = round(int(planned.sum()) / (made * limit), 6)
        table.append(entry)
    return table
