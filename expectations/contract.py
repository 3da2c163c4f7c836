"""Invariants and metrics: declared once, checked while parts are made and on written shards.

A subject (labels, packs, shards, ...) has both. Its metrics are columns of whole numbers, computed
from rows as they are stored; its invariants are checks on such columns. The same declarations are
checked on every row while parts are made (refusing it early, by name) and on the written shards
(which a trainer will read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from expectations.checks import Check
from stages.kinds import Kind
from stages.profile import TargetModel
from stages.tokens import layouts

EXAMPLE = "examples"  # one row of metrics per example
ROW = "rows"  # one per training row: a pack, or a padded row; ragged builds have no such table
SHARD = "shards"  # one per file
DATASET = "dataset"  # one in all
LEVELS = (EXAMPLE, ROW, SHARD, DATASET)

# Traits of rows, for metrics and invariants that apply to some rows only.
ANSWERS = "answers"  # every answer is trained
COMPARES = "compares"  # a loss compares two sequences of an example
LABELLED = "labelled"  # a label for each token
MARKS = "marks"  # labels are read at markers
PACKS, PADS = "packs", "pads"  # their layout
INDEXED = "indexed"  # packs lie beside the rows, as numbers of examples
SHARES = "shares"  # packs or an index say which examples share a row of the trainer
ENCODER, DECODER = "encoder", "decoder"  # the family of the model
STREAM = "stream"  # instead of a layout: examples while a part is made, before any shard

# What is known besides the rows themselves; each value includes the ones before it.
ALONE = "row"  # nothing: rows while a part is made
STORED = "shard"  # their row ids: rows of a finished build
PLANNED = "plan"  # the plan and the parts from which the shards were written
_EVIDENCE = (ALONE, STORED, PLANNED)

SEVERITIES = ("critical", "warning", "info")

Columns = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks of rows depend on.

    Attributes:
        kind: of the examples; ``layout``: of the rows: the build's, or ``STREAM``.
        model: None where suites are only written, not run; these are the suites of decoders.
        evidence: what is known besides the rows themselves.
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
        """The traits of such rows, by the names in ``Scope.needs``."""
        layout = None if self.layout == STREAM else layouts.load(self.layout)
        traits = {
            ANSWERS: self.kind.trains_answers,
            COMPARES: self.kind.compares,
            LABELLED: self.kind.labelled,
            MARKS: self.kind.marks,
            PACKS: layout is not None and layout.packs,
            PADS: layout is not None and layout.pads,
            INDEXED: layout is not None and layout.indexed,
            SHARES: layout is not None and (layout.packs or layout.indexed),
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
    """Where metrics or an invariant apply.

    Attributes:
        level: the table.
        needs: traits that rows must have (``Context.traits``); empty means any rows.
        evidence: what must be known; where less is known it does not apply.
    """

    level: str = EXAMPLE
    needs: tuple[str, ...] = ()
    evidence: str = ALONE

    def applies(self, context: Context, level: str) -> bool:
        """Whether it applies to this table of such a build."""
        return (
            level == self.level
            and context.traits.issuperset(self.needs)
            and _EVIDENCE.index(self.evidence) <= _EVIDENCE.index(context.evidence)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(Scope):
    """Columns that one function computes.

    Attributes:
        measure: gets the object of its level (``StoredRows`` for examples and rows, ``ShardFile``
            for shards, ``Dataset`` for the dataset; all in ``expectations``) and returns
            columns by name: booleans or whole numbers, one for each example, row or file, and never
            missing. No two functions may measure a column of one name.
    """

    measure: Callable[[Any], Columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant(Scope):
    """One rule that must hold.

    Attributes:
        name: also the reject code of a row that breaks it.
        why: what goes wrong in training when it does not hold.
        checks: on metrics; a row that fails one of them breaks it.
        breaks: metrics that break it and no other; a test sees the check fail on these.
        evidence: ``ALONE`` where only a bug of this program can break it: an example that breaks it
            while a part is made ends the build as an internal error. ``STORED`` where the data can
            break it: then it is checked on the shards.
        severity: a broken critical one fails the build; warning and info are only reported.
    """

    name: str
    why: str
    checks: tuple[Check, ...]
    breaks: Mapping[str, int | bool]
    severity: str = "critical"

    def checks_for(self, context: Context) -> tuple[Check, ...]:
        """Its checks that apply to such rows."""
        return tuple(c for c in self.checks if context.traits.issuperset(c.needs))


@dataclass(frozen=True, slots=True)
class Subject:
    """The metrics and invariants of one subject: one file.

    Attributes:
        metrics: its columns; an invariant may also use those of other subjects.
    """

    metrics: tuple[Metrics, ...]
    invariants: tuple[Invariant, ...]
