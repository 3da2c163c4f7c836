"""SFT: what share of the tokens is trained, turn by turn."""

from __future__ import annotations

import numpy as np

from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, portion
from expectations.contract import ANSWERS
from expectations.stored_rows import Chunk
from stages.columns import offsets_of
from stages.errors import counted

_TURNS = 12  # turns that are counted separately; later ones are counted together


def _measure(chunk: Chunk) -> Counts:
    """A turn is what ends in an end-of-turn token; what follows the last one belongs to it."""
    sequences = chunk.sequences
    ends = np.flatnonzero(sequences.ids == chunk.context.model.end_of_turn_id)
    owner = sequences.owner(ends)
    # A turn starts after the end of the turn before, the first one of an example at its start.
    starts = np.where(
        np.diff(owner, prepend=-1) > 0, sequences.offsets[owner], np.append(0, ends[:-1] + 1)
    )
    first = np.searchsorted(owner, np.arange(len(chunk)))
    place = np.minimum(np.arange(len(ends)) - first[owner], _TURNS)
    trained = offsets_of(chunk.trained.view(np.int8))
    # Trained tokens in a turn: the difference of two cumulative counts.
    in_turn = trained[ends + 1] - trained[starts]
    size = _TURNS + 1
    return {
        "turns": np.bincount(place, minlength=size),
        "tokens": np.bincount(place, ends + 1 - starts, size).astype(np.int64),
        "trained": np.bincount(place, in_turn, size).astype(np.int64),
        "trained turns": np.bincount(place, in_turn > 0, size).astype(np.int64),
    }


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    trained, tokens = facts.ledger.trained, facts.ledger.tokens
    detail = f"{trained:,} of {counted(tokens, 'token')} trained"
    figures = [portion("all turns", trained, tokens, detail)]
    columns = [totals.summed(name) for name in ("turns", "tokens", "trained", "trained turns")]
    for place, (turns, in_turns, trained, with_training) in enumerate(zip(*columns, strict=True)):
        if turns:
            name = f"turn {place + 1}" if place < _TURNS else "later turns"
            detail = (
                f"{with_training} of {turns} are trained, {trained / max(1, with_training):.1f} "
                "trained tokens each"
            )
            figures.append(portion(name, trained, in_turns, detail))
    return figures


AUDIT = Audit(
    name="trained_share",
    about="SFT: what share of the tokens is trained, turn by turn.",
    why="a share near 0 or 1 shows turns that were left out, or trained, by mistake",
    judge=_judge,
    measure=_measure,
    needs=(ANSWERS,),
)
