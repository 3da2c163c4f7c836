"""Invariants and metrics: declared once, checked while parts are made and on written shards.

A subject (labels, packs, shards, ...) has both. Its metrics are columns of whole numbers, computed
from rows as they are stored; its invariants are checks on such columns. The same declarations are
checked on every row while parts are made (refusing it early, by name), and judged by Great
Expectations on the written shards (which a trainer will read).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from stages import kinds, profile
from stages.tokens import layouts

EXAMPLE = "examples"  # one row of metrics per example
ROW = "rows"  # one per training row: a pack, or a padded row; ragged builds have no such table
SHARD = "shards"  # one per file
DATASET = "dataset"  # one in all
LEVELS = (EXAMPLE, ROW, SHARD, DATASET)

# Traits of rows, for metrics and invariants that apply to some rows only.
ANSWERS = "answers"  # every answer is trained
COMPARES = "compares"  # a loss compares two sequences of an example
JUDGED = "judged"  # somebody says of answers or of steps how good they are
LABELLED = "labelled"  # a label for each token
MARKS = "marks"  # labels are read at markers
PACKS, PADS = "packs", "pads"  # their layout
INDEXED = "indexed"  # packs lie beside the rows, as numbers of examples
SHARES = "shares"  # packs or an index say which examples share a row of the trainer
ENCODER, DECODER = "encoder", "decoder"  # the family of the model
RENDERED = "rendered"  # no foreign ids, and nothing but answers is trained, each whole
APART = "apart"  # rows that ask the same are on one side of train and test
STREAM = "stream"  # instead of a layout: examples while a part is made, before any shard

# What is known besides the rows themselves; each value includes the ones before it.
ALONE = "row"  # nothing: rows while a part is made
STORED = "shard"  # their row ids: rows of a finished build
PLANNED = "plan"  # the plan and the parts from which the shards were written
_EVIDENCE = (ALONE, STORED, PLANNED)


Columns = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks of rows depend on.

    Attributes:
        kind: of the examples; ``layout``: of the rows: the build's, or ``STREAM``.
        model: None where suites are only written, not run; these are the suites of decoders.
        evidence: what is known besides the rows themselves.
        more: traits that follow from the options.
    """

    kind: kinds.Kind
    layout: str
    max_length: int
    model: profile.TargetModel
    evidence: str = ALONE
    more: tuple[str, ...] = ()

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
            JUDGED: self.kind.compares or self.kind.marks,
            LABELLED: self.kind.labelled,
            MARKS: self.kind.marks,
            PACKS: layout is not None and layout.packs,
            PADS: layout is not None and layout.pads,
            INDEXED: layout is not None and layout.indexed,
            SHARES: layout is not None and (layout.packs or layout.indexed),
            STREAM: layout is None,
            self.family: True,
        }
        return frozenset((*self.more, *(name for name, true in traits.items() if true)))


PARAMETERS = ("max_length", "last_id", "end_of_turn_id", "first_id")


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
    checks: "tuple[Check, ...]"
    breaks: Mapping[str, int | bool]
    severity: str = "critical"

    def checks_for(self, context: Context) -> "tuple[Check, ...]":
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


# The two kinds of checks on columns of metrics.
#
# A check is data: bounds on one column, or two columns that must be equal. Three things are derived
# from it: the predicate that refuses rows while parts are made, the Great Expectations expectation
# that judges what was read back, and the numbers of which only the lowest and the highest have to
# be judged. A bound may be the name of a parameter, such as ``max_length``.


Bound = int | str | None
Values = Mapping[str, npt.NDArray[np.int64]]  # columns of metrics by name, all of one length


@dataclass(frozen=True, slots=True)
class Between:
    """The values of a column are between two bounds, both included.

    Attributes:
        needs: traits of the rows it applies to, as ``contract.Scope.needs``; empty means any.
    """

    column: str
    low: Bound = None
    high: Bound = None
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return (self.column,)

    def broken(self, metrics: Values, parameters: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        """Which rows break it."""
        low, high = (parameters[b] if isinstance(b, str) else b for b in (self.low, self.high))
        values = metrics[self.column]
        outside = np.zeros(len(values), bool)
        if low is not None:
            outside |= values < low
        if high is not None:
            outside |= values > high
        return outside

    def deciding(self, metrics: Values) -> npt.NDArray[np.int64]:
        """A number for each row: if any row breaks it, one with the lowest or the highest does."""
        return metrics[self.column]

    def expectation(self) -> tuple[str, dict[str, Any]]:
        """Type and arguments of the expectation, parameters by name."""
        bounds = {"min_value": self.low, "max_value": self.high}
        named = {
            key: {"$PARAMETER": bound} if isinstance(bound, str) else bound
            for key, bound in bounds.items()
            if bound is not None
        }
        return "expect_column_values_to_be_between", {"column": self.column, **named}


@dataclass(frozen=True, slots=True)
class Equal:
    """Two columns are equal in every row; its methods are those of ``Between``."""

    column: str
    other: str
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.other)

    def broken(self, metrics: Values, parameters: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        differs: npt.NDArray[np.bool_] = metrics[self.column] != metrics[self.other]
        return differs

    def deciding(self, metrics: Values) -> npt.NDArray[np.int64]:
        return self.broken(metrics, {}).astype(np.int64)

    def expectation(self) -> tuple[str, dict[str, Any]]:
        columns = {"column_A": self.column, "column_B": self.other}
        return "expect_column_pair_values_to_be_equal", {**columns, "ignore_row_if": "neither"}


Check: TypeAlias = Between | Equal


def none(column: str, *needs: str) -> Between:
    """A count is 0, or a boolean is false."""
    return Between(column, low=0, high=0, needs=needs)


def holds(column: str, *needs: str) -> Between:
    """A boolean is true."""
    return Between(column, low=1, high=1, needs=needs)


def every_sequence(check: Between) -> tuple[Between, ...]:
    """A check on each sequence of an example: its one, or both sides of a pair."""
    sides = [
        replace(check, column=f"{side}_{check.column}", needs=("compares",))
        for side in ("chosen", "rejected")
    ]
    return (replace(check, needs=("labelled",)), *sides)
