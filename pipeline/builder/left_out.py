"""What filters and ``--dedup`` left out of a build, by filter and by source: for its manifest."""

from __future__ import annotations

import numpy as np

from pipeline.manifest.counts import DoubleCounts, FilterCounts
from pipeline.options.config import Config
from pipeline.shards.facts import Counts
from pipeline.shards.fates import Fate
from pipeline.shards.filters import Filtered
from pipeline.shards.plan import Chosen
from stages.errors import PipelineError


def filters(
    config: Config, plan: Chosen | None, filtered: Filtered | None
) -> tuple[FilterCounts, ...]:
    """What each filter left out; empty without filters.

    Raises:
        PipelineError: the build does not leave out just what the filters say.
    """
    if filtered is None or plan is None:
        return ()
    if not np.array_equal(plan.choice.fate == Fate.FILTERED, filtered.by > 0):
        raise PipelineError("What the filters leave out is not what was left out.")
    count = len(filtered.filters) + 1
    examples = np.bincount(filtered.by, minlength=count).tolist()
    null = np.bincount(filtered.by[filtered.null], minlength=count).tolist()
    rows = np.bincount(_of_rows(plan, filtered), minlength=count).tolist()
    return tuple(
        FilterCounts(
            expression=text,
            source=config.sources[source].name or None,
            examples=examples[number],
            null=null[number],
            rows=rows[number],
        )
        for number, (source, text) in enumerate(filtered.filters, 1)
    )


def _of_rows(plan: Chosen, filtered: Filtered) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Of each row whose examples are all filtered, the last filter that one of them came to."""
    row = plan.examples.row
    if not len(row):
        return filtered.by
    begin = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    every = np.logical_and.reduceat(plan.choice.fate == Fate.FILTERED, begin)
    last: np.ndarray[tuple[int], np.dtype[np.uint16]] = np.maximum.reduceat(filtered.by, begin)
    return last[every]


def doubles(config: Config, counts: Counts) -> tuple[DoubleCounts, ...]:
    """What ``--dedup`` left out, by pair of sources; empty where sources have no names."""
    if not config.plan.dedup:
        return ()
    names = [one.name for one in config.sources]
    return tuple(
        DoubleCounts(source=names[gone], kept_in=names[stays], examples=count)
        for (gone, stays), count in sorted(counts.doubles.items())
        if count
    )
