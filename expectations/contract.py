"""What an invariant is, and the metrics that it is about: declared once, run wherever rows are.

A subject (labels, packs, shards, ...) holds both. Its metrics are columns of whole numbers that
are measured on rows as they are stored; its invariants are checks on such columns. The same
declarations are run on every row in stream (refusing it early, by name) and on the shards as they
were written (judging what a trainer will read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import polars as pl

from expectations.checks import Check
from stages import layouts
from stages.kinds import Kind
from stages.profile import TargetModel

EXAMPLE = "examples"  # one row of metrics per example
ROW = "rows"  # one per training row: a pack, or a padded row; ragged builds have no such table
SHARD = "shards"  # one per file
DATASET = "dataset"  # one in all
LEVELS = (EXAMPLE, ROW, SHARD, DATASET)

# What rows can be, for what is said of some of them only.
ANSWERS = "answers"  # every answer is trained
COMPARES = "compares"  # a loss compares two sequences of an example
LABELLED = "labelled"  # a label for each token
MARKS = "marks"  # labels are read at markers
PACKS, PADS = "packs", "pads"  # their layout
ENCODER, DECODER = "encoder", "decoder"  # the family of the model
STREAM = "stream"  # in the place of a layout: examples on their way to a part, before any shard

ALONE = "row"  # a row alone, in stream
STORED = "shard"  # with its name, in a finished build
PLANNED = "plan"  # with the plan and the parts that it was written from
_EVIDENCE = (ALONE, STORED, PLANNED)

SEVERITIES = ("critical", "warning", "info")

Columns = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True)
class Context:
    """What rows are judged against.

    Attributes:
        kind: of the examples; ``layout``: of the rows: the build's, or ``STREAM``.
        model: None where suites are only written down, not run: they are those of decoders.
        evidence: what is at hand beside the row itself.
    """

    kind: Kind
    layout: str
    max_length: int
    model: TargetModel
    evidence: str = ALONE

    @property
    def family(self) -> str:
        """``encoder`` or ``decoder``."""
        return self.model.profile.family if self.model else DECODER

    @property
    def traits(self) -> frozenset[str]:
        """What such rows are, in the words that a ``Scope`` needs."""
        layout = None if self.layout == STREAM else layouts.load(self.layout)
        traits = {
            ANSWERS: self.kind.trains_answers,
            COMPARES: self.kind.compares,
            LABELLED: self.kind.labelled,
            MARKS: self.kind.marks,
            PACKS: layout is not None and layout.packs,
            PADS: layout is not None and layout.pads,
            STREAM: layout is None,
            self.family: True,
        }
        return frozenset(name for name, true in traits.items() if true)


def parameters(context: Context) -> dict[str, int]:
    """The bounds that depend on the model and the options, by the names that suites use."""
    model, pair = context.model, context.model.profile.pair
    return {
        "max_length": context.max_length,
        "last_id": model.profile.embedding_size - 1,
        "end_of_turn_id": model.end_of_turn_id,
        **({"first_id": model.controls[pair.before[0]]} if pair else {}),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where metrics are measured, or an invariant says something.

    Attributes:
        level: which table it is about.
        needs: what rows must be (``Context.traits``); empty means any.
        evidence: what it needs; where there is less it is left out.
    """

    level: str = EXAMPLE
    needs: tuple[str, ...] = ()
    evidence: str = ALONE

    def applies(self, context: Context, level: str) -> bool:
        """Whether it belongs to this table of such a build."""
        return (
            level == self.level
            and context.traits.issuperset(self.needs)
            and _EVIDENCE.index(self.evidence) <= _EVIDENCE.index(context.evidence)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Scope):
    """Columns that one function measures.

    Attributes:
        measure: gets what its level is about (``StoredRows`` for examples and rows, ``ShardFile``
            for shards, ``Dataset`` for the dataset; all in ``expectations.readback``) and returns
            columns by name: booleans or whole numbers, one for each example, row or file, and never
            missing. No two functions may measure a column of one name.
    """

    measure: Callable[[Any], Columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant(Scope):
    """One law.

    Attributes:
        name: also the reject code of a row that breaks it.
        why: what goes wrong in training when it does not hold.
        checks: what it says about metrics; a row that fails one of them breaks it.
        breaks: metrics that must trip it, and no other: a check never seen to fail is no check.
        evidence: ``ALONE`` where it is about what our own code makes of a row: in stream, an
            example of ours that breaks it ends the build as a fault of this program. What the data
            itself may break is ``STORED``: judged on the shards.
        severity: a broken critical one fails the build; warning and info are only told.
    """

    name: str
    why: str
    checks: tuple[Check, ...]
    breaks: Mapping[str, int | bool]
    severity: str = "critical"

    def checks_for(self, context: Context) -> tuple[Check, ...]:
        """What it says of such rows."""
        return tuple(c for c in self.checks if context.traits.issuperset(c.needs))

    def bad(self, context: Context) -> pl.Expr:
        """Selects the metrics rows that break it; null where that cannot be said."""
        bounds = parameters(context)
        return pl.any_horizontal([check.bad(bounds) for check in self.checks_for(context)])


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured about one subject, and what must be true of it: one file.

    Attributes:
        metrics: its columns; an invariant may also look at those of other subjects.
    """

    metrics: tuple[Metrics, ...]
    invariants: tuple[Invariant, ...]
