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
from expectations.contents import Chunk
from expectations.undo_layout import Sequences
from stages.columns import Ints
from stages.errors import counted, were

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
    about="In which scripts the examples and their trained parts are written.",
    why="a model answers in the language that it was trained on",
    judge=_judge,
    measure=_measure,
)


# Content that spells out a control token: harmless as ids, but a sign of templated input.


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


def _control_text_measure(chunk: Chunk) -> Counts:
    rows = _rows(chunk.sequences, chunk)
    if chunk.other is not None:
        rows = np.union1d(rows, _rows(chunk.other, chunk))
    return {
        "rows": np.array([len(chunk), len(rows)]),
        "names": np.array(chunk.named(rows), object),
    }


def _control_text_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    examples, affected = totals.summed("rows").tolist()
    detail = f"the text of a control token in {affected:,} of {counted(examples, 'example')}"
    names = totals.named("names")
    return [portion("examples", affected, examples, detail, tolerances, rows=names)]


CONTROL_TEXT = Audit(
    name="control_text",
    about="Content that spells out a control token: harmless as ids, but a sign of "
    "templated input.",
    why="text of control tokens often means that the data already carries a chat template",
    judge=_control_text_judge,
    measure=_control_text_measure,
    tolerances={"warn": 0.0, "least": 1},  # one row is worth a look
)


# How many sampled rows the tokenizer does not give back; above the limit no build is planned.


def _lost_text_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lost, sampled, first = facts.lost
    example = f", for example {first}" if first else ""
    detail = f"{lost} of {counted(sampled, 'sampled row')}{example}"
    # A plan refuses what is above the limit, so here it only warns.
    return [portion("lost text", lost, sampled, detail, {"warn": tolerances["warn"]})]


LOST_TEXT = Audit(
    name="lost_text",
    about="How many sampled rows the tokenizer does not give back; above the limit no build "
    "is planned.",
    why="text that the tokenizer loses is neither learned nor answered",
    judge=_lost_text_judge,
    tolerances={"warn": 0.0, "fail": 0.05},
)


# Equal examples.


def _duplicates_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    equal, compared = ledger.equal, ledger.kept
    if ledger.removed:  # before budgets left anything out: of all that were compared
        compared += ledger.removed + ledger.left_after
    removed = "removed" if ledger.removed else "kept"
    examples = counted(compared, "example")
    detail = f"{equal:,} of {examples}, equal to an earlier one, {were(equal)} {removed}"
    judged = None if ledger.removed else tolerances
    return [portion("equal examples", equal, compared, detail, judged)]


DUPLICATES = Audit(
    name="duplicates",
    about="Equal examples.",
    why="duplicates are trained twice",
    judge=_duplicates_judge,
    tolerances={"warn": 0.01, "least": 20},
)
