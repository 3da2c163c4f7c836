"""What the length limit cost: rows refused for it, and tokens trimmed."""

from __future__ import annotations

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals, level, share
from stages.counted import counted


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    refused, made, trimmed = ledger.too_long, ledger.made, ledger.truncated
    lost, cut = share(refused, made), share(trimmed, ledger.tokens + trimmed)
    return [
        Figure(
            "refused",
            lost,
            "share",
            f"{refused:,} of {counted(made, 'example')} longer than "
            f"{counted(ledger.max_length, 'token')}",
            status=level(lost, tolerances, made),
        ),
        Figure(
            "trimmed",
            cut,
            "share",
            f"{counted(trimmed, 'token')} of whole turns or steps left out",
            status=level(cut, tolerances, made),
        ),
    ]


AUDIT = Audit(
    name="truncation",
    why="long rows differ from the others: without them a model learns to answer briefly",
    judge=_judge,
    tolerances={"warn": 0.05, "least": 50},
)
