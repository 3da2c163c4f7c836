"""A whole build: sums of its metrics by side, its examples as numbers, and what it declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.contract import PLANNED, STORED, Context
from expectations.undo_layout import column
from stages.columns import Ints, list_parts

if TYPE_CHECKING:
    from expectations.tallies import Tally

SIDES = ("train", "test")
IDENTITY = ("source", "line", "sequence", "digest_a", "digest_b")  # of an example


Piece: TypeAlias = Mapping[str, Mapping[str, Ints]]  # by side, by column


@dataclass(frozen=True, slots=True)
class Dataset:
    """Input of metrics of the dataset.

    Attributes:
        sums: the tally of each table of metrics, by side and table; a side without shards has none.
        names: the first three of ``IDENTITY`` of all examples, in pieces: those of one input row
            are in one piece.
        contents: the last two, in pieces: those of equal examples are in one piece.
        declared: numbers of ledger, plan and manifest: ``rows_in``, ``rows_accounted``,
            ``examples_made``, ``examples_accounted``, ``examples_kept``, ``tokens_kept``,
            ``trained_kept``, ``duplicates_declared``; ``packed_apart_train`` and ``_test`` where
            packs hold examples of one part each: how many parts were packed.
    """

    sums: Mapping[tuple[str, str], Tally]
    names: Callable[[], Iterable[Piece]]
    contents: Callable[[], Iterable[Piece]]
    declared: Mapping[str, int]
    context: Context

    def _sums(self, table: str, side: str | None) -> list[Tally]:
        sides = SIDES if side is None else (side,)
        return [self.sums[one, table] for one in sides if (one, table) in self.sums]

    def rows(self, table: str, side: str | None = None) -> int:
        """How many rows a table of metrics has, of one side or of both."""
        return sum(one.rows for one in self._sums(table, side))

    def total(self, table: str, column: str, side: str | None = None) -> int:
        """The sum of a column of a table of metrics, of one side or of both."""
        return sum(one.sums[column] for one in self._sums(table, side))


def as_one(*columns: Ints) -> Ints:
    """One number for each row of some columns: equal exactly where all columns are equal."""
    code = np.zeros(len(columns[0]), np.int64)
    span = 1
    for values in columns:
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        width = high - low + 1
        if width == 1:
            continue
        if span * width >= 2**63:  # too large for one number: count the different ones instead
            code, span = _ranked(code)
            values, width = _ranked(values)
            low = 0
        code = code * width + (values - low)
        span *= width
    return code


def _ranked(values: Ints) -> tuple[Ints, int]:
    distinct, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64), len(distinct)


def n_distinct(*values: Ints) -> int:
    """How many different numbers there are in some arrays."""
    # Not np.unique: it puts them into a hash table, which takes ten times as long as a sort.
    ordered = np.sort(np.concatenate(values))
    return len(ordered) - int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def n_distinct_pairs(a: Ints, b: Ints) -> int:
    """How many different pairs of numbers there are; fast where few of the first repeat."""
    ordered = np.sort(a)
    again = np.isin(a, ordered[1:][ordered[1:] == ordered[:-1]])
    return len(a) - int(again.sum()) + n_distinct(as_one(a[again], b[again]))


def n_in_both(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> int:
    """How many pairs of numbers of the second are in the first, too."""
    few = np.isin(other[0], one[0])
    if not few.any():
        return 0
    known = np.isin(one[0], other[0][few])
    a = np.concatenate([one[0][known], other[0][few]])
    b = np.concatenate([one[1][known], other[1][few]])
    code, split = as_one(a, b), int(known.sum())
    return int(np.isin(code[split:], code[:split]).sum())


# An index of packs as it is stored, beside the lengths of the examples that it names.


@dataclass(frozen=True)
class IndexRows:
    """All packs of one side: input of metrics of rows, where packs are an index.

    Attributes:
        table: ``examples`` (list<int64>: numbers of the side's examples in stored order, from 0)
            and ``tokens`` (int32), one row a pack.
        lengths: tokens of each stored example of the side, read from its shards.
        planned: the examples of all packs, flat, and how many each has; None for a finished build.
    """

    table: pa.Table
    lengths: npt.NDArray[np.integer]
    context: Context
    planned: tuple[Ints, Ints] | None = None

    @property
    def evidence(self) -> str:
        """What is known besides the index and the shards, as ``Context.evidence``."""
        return STORED if self.planned is None else PLANNED

    @cached_property
    def packs(self) -> tuple[Ints, Ints]:
        """Where each pack's examples begin, and the examples, flat."""
        offsets, values = list_parts(column(self.table, "examples"))
        return offsets, values.to_numpy()

    @property
    def tokens(self) -> Ints:
        """What the index says of each pack's tokens."""
        stored: Ints = column(self.table, "tokens").to_numpy().astype(np.int64)
        return stored
