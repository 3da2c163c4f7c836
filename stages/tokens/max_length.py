"""The limit of length, ``--max-length``: longer examples lose whole turns or steps, or are refused.

With ``--too-long trim-turns`` or ``trim-steps`` they are dropped from an example's end. Nothing is
ever cut inside a turn or a step, and no end-of-turn token is lost or added: what is left is what
the row would be without the turns or steps that were dropped.
"""

import numpy as np
import numpy.typing as npt

from stages import columns, contract
from stages.chat_template.segments import CLOSES, MARKER
from stages.columns import Bools, Ints

Kinds = npt.NDArray[np.uint8]


def _keep_turns(kinds: Kinds, lengths: Ints, limit: int) -> Bools | None:
    """Everything up to the last complete turn that fits; None where not even the first does."""
    ends = np.flatnonzero((kinds & CLOSES) > 0)
    fitting = ends[np.cumsum(lengths)[ends] <= limit]
    if not len(fitting):
        return None
    kept: Bools = np.arange(len(kinds)) <= fitting[-1]
    return kept


def _keep_steps(kinds: Kinds, lengths: Ints, limit: int) -> Bools | None:
    """The steps that fit, and what the template prints behind the last of them (``tail``)."""
    markers = np.flatnonzero((kinds & MARKER) > 0)
    tail = int(lengths[markers[-1] + 1 :].sum())
    fitting = markers[np.cumsum(lengths)[markers] + tail <= limit]
    if not len(fitting):
        return None
    at = np.arange(len(kinds))
    kept: Bools = (at <= fitting[-1]) | (at > markers[-1])
    return kept


_POLICIES = {"trim-turns": _keep_turns, "trim-steps": _keep_steps}
POLICIES = ("reject", *_POLICIES)


def trimmed(policy: str, kinds: Kinds, lengths: Ints, offsets: Ints, limit: int) -> Bools:
    """Which segments stay, so that as many rows as possible are at most ``limit`` tokens.

    Args:
        kinds, lengths: of each segment; lengths in tokens.
        offsets: where each row's segments start.
    """
    kept = np.ones(len(kinds), bool)
    totals = np.diff(np.concatenate([[0], np.cumsum(lengths)])[offsets])
    for row in np.flatnonzero(totals > limit) if policy in _POLICIES else ():
        span = slice(int(offsets[row]), int(offsets[row + 1]))
        choice = _POLICIES[policy](kinds[span], lengths[span], limit)
        if choice is not None:
            kept[span] = choice
    return kept


def longer(
    policy: str, kinds: Kinds, lengths: Ints, offsets: Ints, kept: Bools, limit: int
) -> Ints:
    """Tokens that each row would have with the first turn or step that it has lost; of a row that
    is too long whatever was dropped, with its first turn or step alone; 0 elsewhere. That each is
    above the limit is a law of its own, which asks for this alone.

    Args:
        lengths: before anything is dropped; others as ``trimmed`` has them.
    """
    found = np.zeros(len(offsets) - 1, np.int64)
    if policy not in _POLICIES:
        return found
    ends = np.flatnonzero((kinds & (CLOSES | MARKER)) > 0)
    stuck = columns.sum_per_row(offsets, np.where(kept, lengths, 0)) > limit
    dropped = columns.sum_per_row(offsets, (~kept).astype(np.int64))
    for row in np.flatnonzero(stuck | (dropped > 0)).tolist():
        start, stop = int(offsets[row]), int(offsets[row + 1])
        lost = start if stuck[row] else start + int(np.argmin(kept[start:stop]))
        own = ends[(ends >= start) & (ends < stop)]
        if len(own) and own[-1] >= lost:
            # Behind the last step the template goes on; behind the last turn nothing is kept.
            behind = lengths[own[-1] + 1 : stop] if kinds[own[-1]] & MARKER else lengths[:0]
            end = own[np.searchsorted(own, lost)]
            found[row] = lengths[start : end + 1].sum() + behind.sum()
    return found


def too_long(batch: contract.Batch, lengths: Ints, limit: int, name: str = "") -> contract.Batch:
    """Refuse rows that are above the limit, but for those that need not be (``longer``): these go
    on, and break the law.

    Args:
        lengths: tokens of each row; ``name``: what is so long, if it is not the whole row.
    """
    shorter = batch.column("longer").to_numpy()
    over = (lengths > limit) & ~((shorter > 0) & (shorter <= limit))
    details = [f"{n} tokens{name}; --max-length is {limit}" for n in lengths[over]]
    return columns.refuse(batch, over, "too_long", details)
