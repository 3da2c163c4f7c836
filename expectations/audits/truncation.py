"""What the length limit cost: rows refused for it, and tokens trimmed."""

from __future__ import annotations

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals, portion
from stages.counted import counted


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
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


AUDIT = Audit(
    name="truncation",
    why="long rows differ from the others: without them a model learns to answer briefly",
    judge=_judge,
    tolerances={"warn": 0.05, "least": 50},
)
