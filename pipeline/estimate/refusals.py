"""Why a build would be refused, as far as its forecast sees, and the length that would help."""

from __future__ import annotations

from pipeline.estimate.forecast import Forecast, would_stop
from pipeline.estimate.population import MAX_LENGTHS
from stages.counted import counted


def long_enough(estimate: Forecast) -> int | None:
    """A ``--max-length`` that nearly all sampled examples fit in, where the build's own refuses too
    many; None where it does not, or where the model was trained on no such length."""
    sampled, config = estimate.sampled, estimate.recipe.config
    if not sampled.long or not would_stop(estimate):
        return None
    context = estimate.recipe.model.profile.context_length
    longer = [one for one in MAX_LENGTHS if config.plan.longest_example < one <= context]
    share = config.judge.max_reject
    return next((one for one in longer if (sampled.lengths > one).mean() <= share), None)


def reasons(estimate: Forecast) -> list[str]:
    """What becomes of the sampled rows of a build that would be refused; nothing of another."""
    if not would_stop(estimate):
        return []
    sampled = estimate.sampled
    found = [
        f"{count:,} of {counted(sampled.rows, 'sampled row')}: {code} ({sampled.details[code]})"
        for code, count in sampled.refused.most_common()
    ]
    if sampled.long:
        limit = estimate.recipe.config.plan.longest_example
        found.append(f"{counted(sampled.long, 'example')} longer than {counted(limit, 'token')}")
    return found or ["most margins are below zero: chosen and rejected may be exchanged"]
