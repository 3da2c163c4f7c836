"""Equal examples."""

from __future__ import annotations

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals, portion
from stages.counted import counted, were


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    ledger = facts.ledger
    equal, compared = ledger.equal, ledger.kept
    if ledger.removed:  # before budgets left anything out: of all that were compared
        compared += ledger.removed + ledger.left_after
    removed = "removed" if ledger.removed else "kept"
    examples = counted(compared, "example")
    detail = f"{equal:,} of {examples}, equal to an earlier one, {were(equal)} {removed}"
    judged = None if ledger.removed else tolerances
    return [portion("equal examples", equal, compared, detail, judged)]


AUDIT = Audit(
    name="duplicates",
    why="duplicates are trained twice",
    judge=_judge,
    tolerances={"warn": 0.01, "least": 20},
)
