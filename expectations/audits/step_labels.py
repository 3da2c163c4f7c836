"""PRM: how the step labels are balanced, and where the first errors are."""

import numpy as np

from expectations import audits, contract, stored_rows
from stages.errors import counted

_PLACES = 20  # steps that are counted separately; later ones are counted together


def _measure(chunk: stored_rows.Chunk) -> audits.Counts:
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


def _judge(
    facts: audits.AuditFacts, totals: audits.Totals, tolerances: audits.Tolerances
) -> list[audits.Figure]:
    good, bad, unlabelled = totals.summed("labels").tolist()
    chains, wrong = totals.summed("chains").tolist()
    first = totals.summed("first").tolist()
    labelled = good + bad
    name = facts.context.model.profile.step_tokens
    labels = tuple(f"step {n}" for n in range(1, _PLACES + 1))
    bins = tuple(zip((*labels, "later"), first, strict=True))
    last = max((n for n, (_, count) in enumerate(bins) if count), default=-1)
    return [
        audits.portion(
            "balance",
            max(good, bad),
            labelled,
            f"{audits.share(good, labelled):.1%} of {labelled} labelled steps are {name.good}",
            tolerances,
            bins=(("good", good), ("bad", bad), ("unlabelled", unlabelled)),
        ),
        audits.portion(
            "first errors",
            wrong,
            chains,
            f"{wrong} of {chains} chains have a step that is bad",
            bins=bins[: last + 1],
        ),
    ]


AUDIT = audits.Audit(
    name="step_labels",
    about="PRM: how the step labels are balanced, and where the first errors are.",
    why="if nearly every step has one label, always predicting it already gives a low loss",
    judge=_judge,
    measure=_measure,
    tolerances={"warn": 0.95, "least": 100},
    needs=(contract.MARKS,),
)


# Pairs whose margin says that the rejected answer is the better one.
#
# A few of them are noise, and are named. Where most margins are below zero the sides are swapped,
# or the scores count the other way round, and a model trained on such pairs learns the opposite.


def _margins_measure(chunk: stored_rows.Chunk) -> audits.Counts:
    if chunk.margins is None:
        return {}
    negative = np.flatnonzero(chunk.margins < 0)  # NaN where a pair has none
    rated = int((~np.isnan(chunk.margins)).sum())
    return {
        "pairs": np.array([rated, len(negative)]),
        "rows": np.array(chunk.named(negative), object),
    }


def _margins_judge(
    facts: audits.AuditFacts, totals: audits.Totals, tolerances: audits.Tolerances
) -> list[audits.Figure]:
    if not len(totals.summed("pairs")):
        return []
    pairs, negative = totals.summed("pairs").tolist()
    below = f"{negative:,} of {counted(pairs, 'margin')} below zero"
    detail = f"{below}: the rejected answer is rated higher"
    rows = totals.named("rows")
    return [audits.portion("negative", negative, pairs, detail, tolerances, rows=rows)]


MARGINS = audits.Audit(
    name="margins",
    about="Pairs whose margin says that the rejected answer is the better one.",
    why="with a negative margin the loss is low when the rejected answer wins",
    judge=_margins_judge,
    measure=_margins_measure,
    tolerances={"warn": 0.0, "fail": 0.5},
    needs=(contract.COMPARES,),
    instead="If the sides are swapped, exchange them and give the margin without its sign; "
    "otherwise drop the rows whose rejected answer is the better one",
)
