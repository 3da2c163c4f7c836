"""How many sampled rows the tokenizer does not give back; above the limit no build is planned."""

from __future__ import annotations

from expectations.audits import PASS, WARN, Audit, AuditFacts, Figure, Tolerances, Totals, share
from stages.counted import counted


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lost, sampled, first = facts.lost
    value = share(lost, sampled)
    example = f", for example {first}" if first else ""
    detail = f"{lost} of {counted(sampled, 'sampled row')}{example}"
    status = WARN if value > tolerances["warn"] else PASS
    return [Figure("lost text", value, "share", detail, status=status)]


AUDIT = Audit(
    name="lost_text",
    why="text that the tokenizer loses is neither learned nor answered",
    judge=_judge,
    tolerances={"warn": 0.0, "fail": 0.05},
)
