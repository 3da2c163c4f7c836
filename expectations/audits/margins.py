"""Pairs whose margin says that the rejected answer is the better one.

A few of them are noise, and are named. Where most margins are below zero the sides are swapped, or
the scores count the other way round, and a model trained on such pairs learns the opposite.
"""

from __future__ import annotations

import numpy as np

from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, portion
from expectations.chunk import Chunk
from expectations.contract import COMPARES
from stages.counted import counted


def _measure(chunk: Chunk) -> Counts:
    if chunk.margins is None:
        return {}
    negative = np.flatnonzero(chunk.margins < 0)  # NaN where a pair has none
    rated = int((~np.isnan(chunk.margins)).sum())
    return {
        "pairs": np.array([rated, len(negative)]),
        "rows": np.array(chunk.named(negative), object),
    }


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    if not len(totals.summed("pairs")):
        return []
    pairs, negative = totals.summed("pairs").tolist()
    below = f"{negative:,} of {counted(pairs, 'margin')} below zero"
    detail = f"{below}: the rejected answer is rated higher"
    rows = totals.named("rows")
    return [portion("negative", negative, pairs, detail, tolerances, rows=rows)]


AUDIT = Audit(
    name="margins",
    why="with a negative margin the loss is low when the rejected answer wins",
    judge=_judge,
    measure=_measure,
    tolerances={"warn": 0.0, "fail": 0.5},
    needs=(COMPARES,),
    instead="If the sides are swapped, swap them and their scores, as columns: "
    "--map chosen=rejected --map rejected=chosen --map score_chosen=score_rejected --map "
    "score_rejected=score_chosen; otherwise drop the rows whose rejected answer is the better one",
)
