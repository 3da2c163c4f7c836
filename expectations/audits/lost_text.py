"""How many sampled rows the tokenizer does not give back; above the limit no build is planned."""

from __future__ import annotations

from expectations.audits import Audit, AuditFacts, Figure, Tolerances, Totals, portion
from stages.counted import counted


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
    lost, sampled, first = facts.lost
    example = f", for example {first}" if first else ""
    detail = f"{lost} of {counted(sampled, 'sampled row')}{example}"
    # A plan refuses what is above the limit, so here it only warns.
    return [portion("lost text", lost, sampled, detail, {"warn": tolerances["warn"]})]


AUDIT = Audit(
    name="lost_text",
    why="text that the tokenizer loses is neither learned nor answered",
    judge=_judge,
    tolerances={"warn": 0.0, "fail": 0.05},
)
