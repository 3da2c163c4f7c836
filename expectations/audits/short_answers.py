"""How many answers (PRM: steps) are almost empty."""

from __future__ import annotations

import numpy as np

from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, portion
from expectations.chunk import Chunk
from stages.columns import Ints

SHORT = 2  # tokens besides the one that ends an answer or a step


def _answers(chunk: Chunk) -> tuple[Ints, Ints]:
    """Tokens of every answer without its last one, and the example that the answer is in."""
    if chunk.context.kind.marks:
        markers = np.flatnonzero(chunk.sequences.ids == chunk.context.model.step_id)
        owner = chunk.sequences.owner(markers)
        follows = np.diff(owner, prepend=-1) == 0  # a first step begins where the problem ends
        return np.diff(markers, prepend=0)[follows] - 1, owner[follows]
    starts, stops = chunk.trained_ends
    # Trained runs of two examples never touch, since the first label of each example is -100.
    return stops - starts - 1, chunk.sequences.owner(starts)


def _sides(chunk: Chunk) -> tuple[Ints, Ints]:
    """The same for the two answers of each pair."""
    lengths = []
    for side in (chunk.sequences, chunk.other):
        assert side is not None
        assert side.starts_at is not None
        lengths.append(side.offsets[1:] - side.starts_at - 1)
    return np.concatenate(lengths), np.tile(np.arange(len(chunk)), 2)


def _measure(chunk: Chunk) -> Counts:
    lengths, owner = _sides(chunk) if chunk.context.kind.compares else _answers(chunk)
    short = np.flatnonzero(lengths <= SHORT)
    return {
        "answers": np.array([len(lengths), len(short)]),
        "rows": np.array(chunk.named(np.unique(owner[short])), object),
    }


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    answers, short = totals.summed("answers").tolist()
    what = "steps after the first" if facts.context.kind.marks else "answers"
    detail = f"{short} of {answers} {what} have at most {SHORT} tokens"
    return [portion(what, short, answers, detail, tolerances, rows=totals.named("rows"))]


AUDIT = Audit(
    name="short_answers",
    why="answers of one word or none teach a model to stop at once",
    judge=_judge,
    measure=_measure,
    tolerances={"warn": 0.05, "least": 50},
)
