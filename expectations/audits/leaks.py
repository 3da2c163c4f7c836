"""Test examples and prompts that are also in train: above the limit no build is published."""

from __future__ import annotations

import hashlib

import numpy as np

from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, portion
from expectations.chunk import Chunk
from stages.columns import Ints


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
    asks = _prompt_ends(chunk) - chunk.sequences.offsets[:-1] > 1  # the first is never trained
    return {chunk.split: _hashes(chunk)[asks]}


def _leaked(totals: Totals) -> Ints:
    """The hash of each test example's prompt that a train example has.

    What most examples have alike is no prompt, but what a template prints before turns that are all
    trained.
    """
    test, train = totals.joined("test"), totals.joined("train")
    prompts, counts = np.unique(np.concatenate([test, train]), return_counts=True)
    leaked = test[np.isin(test, train)]
    found: Ints = leaked[~np.isin(leaked, prompts[2 * counts > len(test) + len(train)])]
    return found


def _pair(facts: AuditFacts, prompt: int) -> tuple[str, ...]:
    """A test example with a prompt, and a train example with the same."""
    names: dict[str, str] = {}
    for chunk in facts.everything():
        asked = np.flatnonzero(_hashes(chunk) == prompt)
        for name in chunk.named(asked, most=1):
            names.setdefault(chunk.split, name)
    return names["test"], names["train"]


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    of = facts.ledger.test
    if of is None:
        return []
    prompts = _leaked(totals)
    pair = _pair(facts, prompts[0]) if len(prompts) else ()
    example = f": {pair[0]} asks what {pair[1]} asks" if pair else ""
    leaks = (
        ("leaked examples", facts.leaked, "test examples are in train too"),
        ("leaked prompts", len(prompts), f"test examples ask what train examples ask{example}"),
    )
    return [
        portion(name, leaked, of, f"{leaked} of {of} {text}", tolerances, rows=pair)
        for name, leaked, text in leaks
    ]


AUDIT = Audit(
    name="leaks",
    why="a test that was trained on measures nothing",
    judge=_judge,
    measure=_measure,
    tolerances={"fail": 0.01},
    whole=True,
    instead="Join groups that share a question (--group-by COLUMN+question), or split by question "
    "alone",
)
