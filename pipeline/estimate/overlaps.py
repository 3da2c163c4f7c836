"""What a build would leave out of the sample because an evaluation asks it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pipeline.choice.contaminated import most_shared
from pipeline.options import overlaps
from pipeline.options.config import Config
from stages.contract import Batch
from stages.overlap import search


def split_off(batch: Batch, config: Config) -> tuple[Batch, list[int]]:
    """The examples that stay, and the lines of those that would be left out."""
    if overlaps.search_of(config.plan) is None:
        return batch, []
    shared = most_shared(pa.chunked_array([batch.column(search.NAME)]))
    gone = shared > config.plan.overlap_share
    lines: list[int] = batch.filter(pa.array(gone)).column("line").to_pylist()
    return batch.filter(pa.array(~gone)), lines


def as_json(left_out: list[str], config: Config) -> dict[str, Any]:
    """What ``plan --json`` has of it: nothing where no evaluation is named."""
    if overlaps.search_of(config.plan) is None:
        return {}
    return {"contaminated": {"examples": len(left_out), "first": left_out[:3]}}


def lines(plan: dict[str, Any]) -> list[str]:
    """The same on the page."""
    if "contaminated" not in plan:
        return []
    count, first = plan["contaminated"]["examples"], ", ".join(plan["contaminated"]["first"])
    total = plan["lengths"]["examples"] + count
    where = f": {first}{' ...' if count > 3 else ''}" if first else ""
    return [f"evals     {count} of {total} sampled examples ask what an evaluation asks{where}"]
