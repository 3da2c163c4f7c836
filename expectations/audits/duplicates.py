"""Equal examples, and test examples or prompts that are also in train."""

from __future__ import annotations

import hashlib

import numpy as np

from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, level, share
from expectations.readback.chunk import Chunk
from stages.columns import Ints
from stages.counted import counted, were


def _prompt_ends(chunk: Chunk) -> Ints:
    """Where each example's prompt ends: where training starts; PRM: where the problem ends."""
    sequences = chunk.sequences
    if sequences.starts_at is not None:
        return sequences.starts_at
    starts, stops = sequences.offsets[:-1], sequences.offsets[1:]
    # The first trained token at or after each start: searchsorted in the sorted trained indices.
    trained = np.append(np.flatnonzero(chunk.trained), len(chunk.trained))
    if not chunk.context.kind.marks:
        ends: Ints = np.minimum(trained[np.searchsorted(trained, starts)], stops)
        return ends
    markers = np.flatnonzero(sequences.ids == chunk.context.model.step_id)
    first = np.append(markers, len(sequences.ids))[np.searchsorted(markers, starts)]
    # The problem ends in the last end-of-turn token before the first marker, if there is one.
    turns = np.flatnonzero(sequences.ids == chunk.context.model.end_of_turn_id)
    before = np.searchsorted(turns, first) - 1
    turn = np.append(turns, -1)[before]
    return np.where(turn >= starts, turn + 1, np.minimum(first, stops))


def _hashes(chunk: Chunk) -> Ints:
    """A 64-bit hash of each example's prompt."""
    view = memoryview(np.ascontiguousarray(chunk.sequences.ids).tobytes())
    starts = (chunk.sequences.offsets[:-1] * 4).tolist()
    digests = [
        hashlib.blake2b(view[start : stop * 4], digest_size=8).digest()
        for start, stop in zip(starts, _prompt_ends(chunk).tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.int64)


def _measure(chunk: Chunk) -> Counts:
    return {chunk.split: _hashes(chunk)}


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    equal, compared = ledger.equal, ledger.kept
    if ledger.removed:  # before budgets left anything out: of all that were compared
        compared += ledger.removed + ledger.left_after
    value = share(equal, compared)
    removed = "removed" if ledger.removed else "kept"
    status = level(value, tolerances, compared) if removed == "kept" else "pass"
    examples = counted(compared, "example")
    detail = f"{equal:,} of {examples}, equal to an earlier one, {were(equal)} {removed}"
    figures = [Figure("equal examples", value, "share", detail, status=status)]
    test = totals.joined("test")
    if ledger.test is None or not len(test):
        return figures
    prompts = int(np.isin(test, totals.joined("train")).sum())
    leaks = (
        ("leaked examples", facts.leaked, ledger.test, "test examples are in train too"),
        ("leaked prompts", prompts, len(test), "test examples have the prompt of a train example"),
    )
    for name, leaked, of, text in leaks:
        value = share(leaked, of)
        detail = f"{leaked} of {of} {text}"
        status = level(value, tolerances, of)
        figures.append(Figure(name, value, "share", detail, status=status))
    return figures


AUDIT = Audit(
    name="duplicates",
    why="duplicates are trained twice, and a test that was trained on measures nothing",
    judge=_judge,
    measure=_measure,
    tolerances={"warn": 0.01, "least": 20},
    whole=True,
)
