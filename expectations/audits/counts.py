"""What is counted of examples: lengths, inputs, answers, trained tokens, step labels, margins."""

import numpy as np

from expectations import audits, stored_rows
from expectations.audits import (
    WARN,
    AuditFacts,
    Counts,
    Figure,
    Tolerances,
    Totals,
    declared,
    portion,
)
from stages.columns import Ints, offsets_of
from stages.errors import counted

_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
_BINS = 40


def _width(longest: int) -> int:
    """Tokens per bin: 1, 2 or 5 times a power of ten, at most ``_BINS`` bins."""
    least = max(1, longest / _BINS)
    ten = 10 ** int(np.floor(np.log10(least)))
    return next(int(ten * step) for step in (1, 2, 5, 10) if ten * step >= least)


def _lengths_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lengths, counts = facts.lengths
    upto = np.cumsum(counts)
    total = int(upto[-1])
    places = [min(total - 1, round(q * (total - 1))) for q in _QUANTILES]
    figures = []
    for quantile, place in zip(_QUANTILES, places, strict=True):
        name = {0: "shortest", 0.5: "median", 1: "longest"}.get(quantile, f"{quantile:.0%}")
        length = int(lengths[np.searchsorted(upto, place, side="right")])
        detail = (
            f"{quantile:.0%} of {counted(total, 'example')} with at most {counted(length, 'token')}"
        )
        figures.append(Figure(name, length, "tokens", detail))
    width = _width(int(lengths[-1]))
    binned = np.bincount(lengths // width, counts).astype(np.int64)
    bins = tuple((str(i * width), int(n)) for i, n in enumerate(binned))
    mean = round(int((lengths * counts).sum()) / total, 2)
    figures.append(
        Figure(
            "mean", mean, "tokens", f"bins of {counted(width, 'token')}, by their start", bins=bins
        )
    )
    return figures


LENGTHS = declared("lengths", _lengths_judge)


# What the length limit cost: rows refused for it, and tokens trimmed.


def _truncation_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    refused, made, trimmed = ledger.too_long, ledger.made, ledger.truncated
    longest = counted(ledger.max_length, "token")
    long = f"{refused:,} of {counted(made, 'example')} longer than {longest}"
    cut = f"{counted(trimmed, 'token')} of whole turns or steps left out"
    tokens = ledger.tokens + trimmed
    return [
        portion("refused", refused, made, long, tolerances),
        portion("trimmed", trimmed, tokens, cut, tolerances, cases=made),
    ]


TRUNCATION = declared("truncation", _truncation_judge)


# What share of the tokens comes from each input.


MOST = 50  # inputs that are listed


def _sources_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    what = "tokens of the longer sides" if facts.context.kind.compares else "tokens"
    total = sum(source.tokens for source in facts.sources)
    figures = []
    ordered = sorted(facts.sources, key=lambda source: (-source.tokens, source.name))
    empty = [source.name for source in facts.sources if source.rows and not source.examples]
    if empty:
        detail = f"no example is left of {', '.join(empty[:5])}"
        figures.append(Figure("empty inputs", len(empty), "count", detail, status=WARN))
    for source in ordered[:MOST]:
        detail = (
            f"{counted(source.rows, 'row')}, {counted(source.examples, 'example')}, "
            f"{source.tokens:,} {what}"
        )
        figures.append(portion(source.name, source.tokens, total, detail))
    return figures


SOURCES = declared("sources", _sources_judge)


# How many answers (PRM: steps) are almost empty.


SHORT = 2  # tokens besides the one that ends an answer or a step


def _answers(chunk: stored_rows.Chunk) -> tuple[Ints, Ints]:
    """Tokens of every answer without its last one, and the example that the answer is in."""
    if chunk.context.kind.marks:
        markers = np.flatnonzero(chunk.sequences.ids == chunk.context.model.step_id)
        owner = chunk.sequences.owner(markers)
        follows = np.diff(owner, prepend=-1) == 0  # a first step begins where the problem ends
        return np.diff(markers, prepend=0)[follows] - 1, owner[follows]
    starts, stops = chunk.trained_ends
    # Trained runs of two examples never touch, since the first label of each example is -100.
    return stops - starts - 1, chunk.sequences.owner(starts)


def _sides(chunk: stored_rows.Chunk) -> tuple[Ints, Ints]:
    """The same for the two answers of each pair."""
    lengths = []
    for side in (chunk.sequences, chunk.other):
        assert side is not None
        assert side.starts_at is not None
        lengths.append(side.offsets[1:] - side.starts_at - 1)
    return np.concatenate(lengths), np.tile(np.arange(len(chunk)), 2)


def _short_answers_measure(chunk: stored_rows.Chunk) -> Counts:
    lengths, owner = _sides(chunk) if chunk.context.kind.compares else _answers(chunk)
    short = np.flatnonzero(lengths <= SHORT)
    return {
        "answers": np.array([len(lengths), len(short)]),
        "rows": np.array(chunk.named(np.unique(owner[short])), object),
    }


def _short_answers_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    answers, short = totals.summed("answers").tolist()
    what = "steps after the first" if facts.context.kind.marks else "answers"
    detail = f"{short} of {answers} {what} have at most {SHORT} tokens"
    return [portion(what, short, answers, detail, tolerances, rows=totals.named("rows"))]


SHORT_ANSWERS = declared("short_answers", _short_answers_judge, _short_answers_measure)


# SFT: what share of the tokens is trained, turn by turn.


_TURNS = 12  # turns that are counted separately; later ones are counted together


def _trained_share_measure(chunk: stored_rows.Chunk) -> Counts:
    """A turn is what ends in an end-of-turn token; what follows the last one belongs to it."""
    sequences = chunk.sequences
    ends = np.flatnonzero(chunk.context.model.ends_turn(sequences.ids))
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


def _trained_share_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
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


TRAINED_SHARE = declared("trained_share", _trained_share_judge, _trained_share_measure)


# PRM: how the step labels are balanced, and where the first errors are.


_PLACES = 20  # steps that are counted separately; later ones are counted together


def _step_labels_measure(chunk: stored_rows.Chunk) -> Counts:
    owner, values = chunk.step_owner, chunk.step_values
    assert owner is not None
    assert values is not None
    good, bad = values >= 0.5, values < 0.5
    starts = np.searchsorted(owner, np.arange(len(chunk)))
    place = np.arange(len(owner)) - starts[owner]
    wrong = np.flatnonzero(bad)
    # np.unique gives, with return_index, the first wrong step of each example that has one.
    with_error, first = np.unique(owner[wrong], return_index=True)
    return {
        "labels": np.array([good.sum(), bad.sum(), np.isnan(values).sum()]),
        "first": np.bincount(np.minimum(place[wrong[first]], _PLACES), minlength=_PLACES + 1),
        "chains": np.array([len(chunk), len(with_error)]),
    }


def _step_labels_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    good, bad, unlabelled = totals.summed("labels").tolist()
    chains, wrong = totals.summed("chains").tolist()
    first = totals.summed("first").tolist()
    labelled = good + bad
    name = facts.context.model.profile.step_tokens
    labels = tuple(f"step {n}" for n in range(1, _PLACES + 1))
    bins = tuple(zip((*labels, "later"), first, strict=True))
    last = max((n for n, (_, count) in enumerate(bins) if count), default=-1)
    return [
        portion(
            "balance",
            max(good, bad),
            labelled,
            f"{audits.share(good, labelled):.1%} of {labelled} labelled steps are {name.good}",
            tolerances,
            bins=(("good", good), ("bad", bad), ("unlabelled", unlabelled)),
        ),
        portion(
            "first errors",
            wrong,
            chains,
            f"{wrong} of {chains} chains have a step that is bad",
            bins=bins[: last + 1],
        ),
    ]


STEP_LABELS = declared("step_labels", _step_labels_judge, _step_labels_measure)


# Pairs whose margin says that the rejected answer is the better one.
#
# A few of them are noise, and are named. Where most margins are below zero the sides are swapped,
# or the scores count the other way round, and a model trained on such pairs learns the opposite.


def _margins_measure(chunk: stored_rows.Chunk) -> Counts:
    if chunk.margins is None:
        return {}
    negative = np.flatnonzero(chunk.margins < 0)  # NaN where a pair has none
    rated = int((~np.isnan(chunk.margins)).sum())
    return {
        "pairs": np.array([rated, len(negative)]),
        "rows": np.array(chunk.named(negative), object),
    }


def _margins_judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    if not len(totals.summed("pairs")):
        return []
    pairs, negative = totals.summed("pairs").tolist()
    below = f"{negative:,} of {counted(pairs, 'margin')} below zero"
    detail = f"{below}: the rejected answer is rated higher"
    rows = totals.named("rows")
    return [portion("negative", negative, pairs, detail, tolerances, rows=rows)]


MARGINS = declared("margins", _margins_judge, _margins_measure)


TABLE = (LENGTHS, TRUNCATION, SOURCES, SHORT_ANSWERS, TRAINED_SHARE, STEP_LABELS, MARGINS)
