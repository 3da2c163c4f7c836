"""Content that spells out a control token: harmless as ids, but a sign of templated input."""

from __future__ import annotations

import numpy as np

from expectations import vocabulary
from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, portion
from expectations.chunk import Chunk
from expectations.undo_layout import Sequences
from stages.counted import counted


def _rows(side: Sequences, chunk: Chunk) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    model = chunk.context.model
    vocab = vocabulary.of(model)
    names = [name for name in model.controls if len(name) > 3]
    # Ids of a token's text as ordinary text would give them; one id alone would be too common.
    phrases = {ids for name in names for ids in vocab.spelled(name, inner=True) if len(ids) > 1}
    if not phrases:
        return np.zeros(0, np.int64)
    at = vocabulary.places(side.ids, sorted(phrases), vocab.size)
    return np.unique(side.owner(at))


def _measure(chunk: Chunk) -> Counts:
    rows = _rows(chunk.sequences, chunk)
    if chunk.other is not None:
        rows = np.union1d(rows, _rows(chunk.other, chunk))
    return {
        "rows": np.array([len(chunk), len(rows)]),
        "names": np.array(chunk.named(rows), object),
    }


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    examples, affected = totals.summed("rows").tolist()
    detail = f"the text of a control token in {affected:,} of {counted(examples, 'example')}"
    names = totals.named("names")
    return [portion("examples", affected, examples, detail, tolerances, rows=names)]


AUDIT = Audit(
    name="control_text",
    why="text of control tokens often means that the data already carries a chat template",
    judge=_judge,
    measure=_measure,
    tolerances={"warn": 0.0, "least": 1},  # one row is worth a look
)
