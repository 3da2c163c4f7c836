"""In which scripts the examples and their trained parts are written."""

from __future__ import annotations

import numpy as np

from expectations import vocabulary
from expectations.audits import (
    Audit,
    AuditFacts,
    Counts,
    Figure,
    Tolerances,
    Totals,
    portion,
    share,
)
from expectations.chunk import Chunk
from stages.columns import Ints

_NAMES = (*vocabulary.SCRIPTS, "no letters")


def _scripts(ids: vocabulary.Ids, chunk: Chunk) -> Ints:
    """How many tokens have letters of each script: as short in a build of any size."""
    vocab = vocabulary.of(chunk.context.model)
    known = np.clip(ids, 0, vocab.size - 1)
    return np.bincount(vocab.scripts(known), minlength=len(_NAMES))


def _measure(chunk: Chunk) -> Counts:
    ids = chunk.sequences.ids
    counts = {"all": _scripts(ids, chunk)}
    if chunk.context.kind.trains_answers:
        counts["trained"] = _scripts(ids[chunk.trained], chunk)
    if chunk.other is not None:
        counts["other"] = _scripts(chunk.other.ids, chunk)
    return counts


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    titles = {"all": "all tokens"}
    if facts.context.kind.compares:
        titles = {"all": "chosen sides", "other": "rejected sides"}
    elif facts.context.kind.trains_answers:
        titles["trained"] = "trained tokens"
    figures = []
    for what, title in titles.items():
        by_script = totals.summed(what)
        letters = int(by_script[:-1].sum())
        bins = [(n, int(c)) for n, c in zip(_NAMES, by_script, strict=True) if c]
        bins.sort(key=lambda pair: -pair[1])
        top = int(np.argmax(by_script[:-1]))
        value = share(by_script[top], letters)
        detail = f"{value:.1%} of {letters} tokens with letters are {_NAMES[top]}"
        figures.append(portion(title, by_script[top], letters, detail, bins=tuple(bins)))
    return figures


AUDIT = Audit(
    name="language",
    why="a model answers in the language that it was trained on",
    judge=_judge,
    measure=_measure,
)
