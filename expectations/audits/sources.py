"""What share of the tokens comes from each input."""

from __future__ import annotations

from expectations.audits import WARN, Audit, AuditFacts, Figure, Tolerances, Totals, portion
from stages.counted import counted

MOST = 50  # inputs that are listed


def _judge(facts: AuditFacts, totals: Totals, tolerances: Tolerances) -> list[Figure]:
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


AUDIT = Audit(
    name="sources",
    why="an input that dominates, or has no example left, is often a mistake in the mixture",
    judge=_judge,
)
