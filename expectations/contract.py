"""What an invariant is: one law about training rows, declared once, run wherever rows are.

The same declaration is evaluated on every row in stream (refusing it early, by name) and on the
metrics of the shards as they were written (judging what a trainer will read).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from expectations.checks import Check
from stages.profile import TargetModel

EXAMPLE = "examples"  # one row of metrics per example
ROW = "rows"  # one per training row: a pack, or a padded row
SHARD = "shards"  # one per file
DATASET = "dataset"  # one in all
LEVELS = (EXAMPLE, ROW, SHARD, DATASET)

ALONE = "row"  # a row alone, in stream
STORED = "shard"  # with its name, in a finished build
PLANNED = "plan"  # with the plan and the parts that it was written from
_EVIDENCE = (ALONE, STORED, PLANNED)

SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Context:
    """What rows are judged against.

    Attributes:
        model: None where suites are only written down, not run: they are those of decoders.
        evidence: what is at hand beside the row itself.
    """

    task: str
    layout: str
    max_length: int
    model: TargetModel
    evidence: str = ALONE

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.model.profile.family if self.model else "decoder"


def parameters(context: Context) -> dict[str, int]:
    """The bounds that depend on the model and the options, by the names that suites use."""
    model, pair = context.model, context.model.profile.pair
    return {
        "max_length": context.max_length,
        "last_id": model.profile.embedding_size - 1,
        "end_of_turn_id": model.end_of_turn_id,
        **({"first_id": model.controls[pair.before[0]]} if pair else {}),
    }


@dataclass(frozen=True, slots=True)
class Invariant:
    """One law.

    Attributes:
        name: also the reject code of a row that breaks it.
        why: what goes wrong in training when it does not hold.
        checks: what it says about metrics; a row that fails one of them breaks it.
        breaks: metrics that must trip it: a check never seen to fail is no check.
        tasks, layouts, families, level: where it applies; empty means everywhere.
        evidence: what it needs to be judged; it says nothing where there is less.
        severity: a broken critical one fails the build; warning and info are only told.
    """

    name: str
    why: str
    checks: tuple[Check, ...]
    breaks: Mapping[str, int | bool]
    tasks: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    level: str = EXAMPLE
    evidence: str = ALONE
    severity: str = field(default="critical")

    def applies(self, context: Context, level: str) -> bool:
        """Whether it says anything about such metrics."""
        return (
            level == self.level
            and (not self.tasks or context.task in self.tasks)
            and (not self.layouts or context.layout in self.layouts)
            and (not self.families or context.family in self.families)
            and _EVIDENCE.index(self.evidence) <= _EVIDENCE.index(context.evidence)
        )

    def checks_for(self, task: str) -> tuple[Check, ...]:
        """What it says where this task is built."""
        return tuple(c for c in self.checks if not c.tasks or task in c.tasks)

    def bad(self, context: Context) -> pl.Expr:
        """Selects the metrics rows that break it; null where that cannot be said."""
        given = parameters(context)
        return pl.any_horizontal([check.bad(given) for check in self.checks_for(context.task)])
