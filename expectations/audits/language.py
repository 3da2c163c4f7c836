"""In which scripts the examples and their trained parts are written."""

from __future__ import annotations

import numpy as np

from expectations import vocabulary
from expectations.audits import Audit, AuditFacts, Counts, Figure, Tolerances, Totals, share
from expectations.readback.chunk import Chunk

_NAMES = (*vocabulary.SCRIPTS, "no letters")


def _measure(chunk: Chunk) -> Counts:
    size = vocabulary.of(chunk.context.model).size
    ids = np.clip(chunk.sequences.ids, 0, size - 1)
    counts = {"all": np.bincount(ids, minlength=size)}
    if chunk.context.kind.trains_answers:
        counts["trained"] = np.bincount(ids[chunk.trained], minlength=size)
    if chunk.other is not None:
        counts["other"] = np.bincount(np.clip(chunk.other.ids, 0, size - 1), minlength=size)
    return counts


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    vocab = vocabulary.of(facts.context.model)
    titles = {"all": "all tokens"}
    if facts.context.kind.compares:
        titles = {"all": "chosen sides", "other": "rejected sides"}
    elif facts.context.kind.trains_answers:
        titles["trained"] = "trained tokens"
    figures = []
    for what, title in titles.items():
        counts = totals.summed(what)
        scripts = vocab.scripts(np.flatnonzero(counts))
        by_script = np.bincount(scripts, counts[counts > 0], len(_NAMES)).astype(np.int64)
        letters = int(by_script[:-1].sum())
        bins = [(n, int(c)) for n, c in zip(_NAMES, by_script, strict=True) if c]
        bins.sort(key=lambda pair: -pair[1])
        top = int(np.argmax(by_script[:-1]))
        value = share(by_script[top], letters)
        detail = f"{value:.1%} of {letters} tokens with letters are {_NAMES[top]}"
        figures.append(Figure(title, value, "share", detail, bins=tuple(bins)))
    return figures


AUDIT = Audit(
    name="language",
    why="a model answers in the language that it was trained on",
    judge=_judge,
    measure=_measure,
)
