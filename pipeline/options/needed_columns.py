"""What filters and the choice among equal examples need of a row: names, never limits."""

from __future__ import annotations

from pipeline.options.build_options import PlanOptions, SourceOptions
from pipeline.options.many_values import Keep
from stages.rows.carried import COUNTS, Carried
from stages.rows.expressions import parse


def carried(source: SourceOptions, plan: PlanOptions) -> Carried:
    """The columns and counts of a source that its parts must have."""
    expressions = [parse(text) for text in source.filter]
    paths = {path for one in expressions for path in one.columns}
    figures = {name for one in expressions for name in one.figures}
    keep = Keep.of(plan.dedup_keep).column
    return Carried(
        paths=tuple(sorted(paths | {keep} if keep else paths)),
        counts=tuple(name for name in COUNTS if name in figures),
    )
