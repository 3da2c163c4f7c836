"""Equal examples."""

from __future__ import annotations

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals, level, share
from stages.counted import counted, were


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    equal, compared = ledger.equal, ledger.kept
    if ledger.removed:  # before budgets left anything out: of all that were compared
        compared += ledger.removed + ledger.left_after
    value = share(equal, compared)
    removed = "removed" if ledger.removed else "kept"
    status = level(value, tolerances, compared) if removed == "kept" else "pass"
    examples = counted(compared, "example")
    detail = f"{equal:,} of {examples}, equal to an earlier one, {were(equal)} {removed}"
    return [Figure("equal examples", value, "share", detail, status=status)]


AUDIT = Audit(
    name="duplicates",
    why="duplicates are trained twice",
    judge=_judge,
    tolerances={"warn": 0.01, "least": 20},
)
