"""The cost of templates that need one example per trained turn.

Where a template prints earlier turns differently once later ones follow, every trained turn becomes
an example of its own that repeats all turns before it. The same turns are trained as in one
example, with many more tokens of context.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.columns import list_parts
from stages.contract import Batch
from stages.counted import counted

COUNTS = ("conversations", "examples", "tokens", "tokens_if_whole")
REMEDY = (
    "--train-on last makes one example of a conversation, trained on its last answer; "
    "a model whose template keeps earlier turns as they are makes one, trained on every answer"
)


def count(batch: Batch) -> dict[str, int]:
    """Counts of the conversations in a batch that became several examples.

    Args:
        batch: encoded, without refused rows: ``line``, ``messages``, ``length``.

    Returns:
        ``conversations``; their ``examples`` and the ``tokens`` of these; ``tokens_if_whole``:
        of the last example of each conversation alone, which holds all its turns.
    """
    if not batch.num_rows:
        return dict.fromkeys(COUNTS, 0)
    continued = _continued(batch)
    lengths = batch.column("length").to_numpy().astype(np.int64)
    # An example is one of several if the next one continues it, or if it continues the one before.
    several = np.append(continued, False) | np.append(False, continued)
    last = several & ~np.append(continued, False)
    totals = (last.sum(), several.sum(), lengths[several].sum(), lengths[last].sum())
    return dict(zip(COUNTS, map(int, totals), strict=True))


def _continued(batch: Batch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each example but the last, whether the next one is the same conversation, longer."""
    offsets, turns = list_parts(batch.column("messages"))
    starts, sizes = offsets[:-1], np.diff(offsets)
    lines = batch.column("line").to_numpy()
    alike: np.ndarray[Any, np.dtype[np.bool_]]
    alike = (lines[:-1] == lines[1:]) & (sizes[:-1] < sizes[1:]) & (sizes[:-1] > 0)
    candidates = np.flatnonzero(alike)
    # Of the shorter one, the first and the last turn are compared with the turns at their places.
    for place in (np.zeros(len(candidates), np.int64), sizes[candidates] - 1):
        ours, theirs = (
            turns.take(pa.array(starts[which] + place)) for which in (candidates, candidates + 1)
        )
        for number in range(3):  # role, content, fields
            one, other = (side.field(number).fill_null("") for side in (ours, theirs))
            alike[candidates] &= pc.equal(one, other).to_numpy(zero_copy_only=False)
    return alike


def figures(counts: dict[str, int]) -> dict[str, Any] | None:
    """The counts and the factor in tokens; None where no conversation became several examples."""
    if not counts.get("conversations"):
        return None
    figures = {name: counts[name] for name in COUNTS}
    return {**figures, "factor": round(figures["tokens"] / figures["tokens_if_whole"], 4)}


def sentence(split: dict[str, Any]) -> str:
    """The same in words, with the remedy."""
    return (
        f"{counted(split['conversations'], 'conversation')} became "
        f"{counted(split['examples'], 'example')}, one per "
        f"trained turn, because the chat template changes earlier turns: {split['tokens']:,} "
        f"tokens, {split['factor']:.1f} times the {split['tokens_if_whole']:,} of whole "
        f"conversations; {REMEDY}"
    )
