"""What an invariant is: one law about training rows, declared once, run wherever rows are.

The same declaration is evaluated on every row in stream (refusing it early, by name) and on the
metrics of the shards as they were written (judging what a trainer will read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import polars as pl

from stages.profile import TargetModel

EXAMPLE = "example"  # one row of metrics per example
ROW = "row"  # one per training row: a pack, or a padded row


@dataclass(frozen=True, slots=True)
class Context:
    """What rows are judged against."""

    task: str
    layout: str
    max_length: int
    model: TargetModel


@dataclass(frozen=True, slots=True)
class Invariant:
    """One law.

    Attributes:
        name: also the reject code of a row that breaks it.
        why: what goes wrong in training when it does not hold.
        bad: selects the metrics rows that break it.
        breaks: metrics that must trip it: a check never seen to fail is no check.
        tasks, layouts, families, level: where it applies; empty means everywhere.
    """

    name: str
    why: str
    bad: Callable[[Context], pl.Expr]
    breaks: Mapping[str, int | bool]
    tasks: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    level: str = EXAMPLE
    severity: str = field(default="critical")

    def applies(self, context: Context, level: str) -> bool:
        """Whether it says anything about such metrics."""
        return (
            level == self.level
            and (not self.tasks or context.task in self.tasks)
            and (not self.layouts or context.layout in self.layouts)
            and (not self.families or context.model.profile.family in self.families)
        )
