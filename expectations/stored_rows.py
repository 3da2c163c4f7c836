"""Rows of a shard with their layout undone, their row ids, and what was planned for them.

Metrics compare what is stored with what was planned. Row ids are numbers here (input, line and
sequence), and the texts that such numbers are written as.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import contract, undo_layout
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers
from stages.tokens.folded_labels import folded_ids
from stages.tokens.segment_encoder import digests, weighted_digests

if TYPE_CHECKING:
    from expectations.tallies import Tally

# What each stored example holds: its lists of numbers, and the digest of them.
#
# The lists are named as parts have them (``folded`` for ids with their labels), so that they can be
# compared number by number. The digests are those by which the plan knows examples: they were
# computed where examples were encoded, before any part was written, and say which of a build are
# equal.


Lists = tuple[Ints, undo_layout.Ids]  # offsets and flat values; floats by their bits

_UNRATED = -1.0  # stands for a step without a rating
_DIGESTED = ("folded", "chosen_ids", "rejected_ids", "input_ids", "labels", "step_labels")
COMPARED = (*_DIGESTED, "step_positions", "loss_weights")


def bits(values: npt.NDArray[np.floating]) -> undo_layout.Ids:
    """Numbers by their bits as float32, since NaN is not equal to itself."""
    return np.ascontiguousarray(values, np.float32).view(np.int32)


def ratings(column: pa.ListArray) -> Lists:
    """A column of ratings, those that are missing as -1."""
    offsets, values = list_parts(column)
    floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
    return offsets, bits(np.nan_to_num(floats, nan=_UNRATED))


def lists(rows: "StoredRows") -> dict[str, Lists]:
    """The lists of the stored examples, by the columns of parts."""
    if rows.paired:
        return {f"{side}ids": (one.offsets, one.ids) for side, one in rows.sides.items()}
    examples = rows.examples
    offsets, ids = examples.sequences.offsets, examples.sequences.ids
    if examples.steps is not None:
        return {
            "input_ids": (offsets, ids),
            "labels": (offsets, examples.labels),
            "step_positions": numbers(examples.steps[0]),
            "step_labels": ratings(examples.steps[1]),
        }
    found = {"folded": (offsets, folded_ids(ids, examples.labels))}
    if examples.weights is not None:
        found["loss_weights"] = (offsets, bits(examples.weights[0]))
    return found


def keys(rows: "StoredRows", found: Mapping[str, Lists]) -> tuple[Ints, Ints]:
    """Two 64-bit halves of the digest of each stored example, computed as in ``encode``.

    Args:
        found: the lists of the rows.
    """
    if "loss_weights" not in found:
        return halves(digests(*(found[name] for name in _DIGESTED if name in found)))
    assert rows.examples.weights is not None
    offsets, folded = found["folded"]
    weights = rows.examples.weights[0]
    return halves(weighted_digests(offsets, folded, trained=folded < 0, weights=weights))


def halves(column: pa.Array) -> tuple[Ints, Ints]:
    """16-byte digests as two columns of int64."""
    # Arrow stores fixed-size binary as one buffer; a slice keeps the whole buffer and an offset.
    data = column.buffers()[1]
    view = np.frombuffer(data or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
    return view[0::2], view[1::2]


def differs(stored: Lists, wanted: Lists) -> npt.NDArray[np.bool_]:
    """Which stored examples do not have exactly the wanted numbers; one without any differs."""
    (at, values), (wanted_at, wanted_values) = stored, wanted
    if np.array_equal(at, wanted_at):
        unequal = values != wanted_values
        return count_per_row(at, unequal) > 0 if unequal.any() else np.zeros(len(at) - 1, bool)
    found = np.ones(len(at) - 1, bool)
    for index in range(min(len(at), len(wanted_at)) - 1):
        mine = values[at[index] : at[index + 1]]
        theirs = wanted_values[wanted_at[index] : wanted_at[index + 1]]
        found[index] = not np.array_equal(mine, theirs)
    return found


# Examples as audits read them: a chunk at a time, from a shard of any layout.


@dataclass(frozen=True)
class Chunk:
    """Some examples of one dataset split, in stored order.

    Attributes:
        sequences: every example's tokens; of a pair, the chosen side.
        other: a pair's rejected side.
        trained: per token of ``sequences``; all False for pairs, which have no labels.
        step_owner, step_values: each rated step's example and rating, NaN where unlabelled.
        margins: of pairs whose build has them.
    """

    split: str
    context: contract.Context
    names: pa.Array
    sequences: undo_layout.Sequences
    trained: undo_layout.Bools
    other: undo_layout.Sequences | None = None
    step_owner: Ints | None = None
    step_values: npt.NDArray[np.float64] | None = None
    margins: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    def named(self, examples: npt.NDArray[np.integer], most: int = 5) -> list[str]:
        """Row ids of the first of some examples."""
        names: list[str] = self.names.take(pa.array(examples[:most], pa.int64())).to_pylist()
        return names

    @cached_property
    def trained_ends(self) -> tuple[Ints, Ints]:
        """First index and end (exclusive) of every run of trained tokens within an example."""
        # +1 where a run starts and -1 where it ends, so starts and ends alternate.
        edges = np.flatnonzero(np.diff(self.trained.view(np.int8), prepend=0, append=0))
        starts, stops = edges[::2], edges[1::2]
        return starts.astype(np.int64), stops.astype(np.int64)


def _pairs(table: pa.Table, split: str, context: contract.Context) -> Chunk:
    shared = table.column("prompt_length").to_numpy().astype(np.int64)
    chosen, rejected = (
        replace(side, starts_at=side.offsets[:-1] + shared)
        for side in undo_layout.sides(table, context).values()
    )
    names = undo_layout.names(table)[1]
    trained = np.zeros(len(chosen.ids), bool)
    rated = "margin" in table.schema.names
    margins = table.column("margin").to_numpy() if rated else None
    return Chunk(split, context, names, chosen, trained=trained, other=rejected, margins=margins)


def chunk_of(table: pa.Table, split: str, context: contract.Context) -> Chunk:
    """The examples of (a part of) a shard of the context's layout."""
    if "chosen_ids" in table.schema.names:
        return _pairs(table, split, context)
    examples = undo_layout.examples(table, context)
    names = undo_layout.names(table)[1]
    trained = examples.labels != IGNORED
    if examples.steps is None:
        return Chunk(split, context, names, examples.sequences, trained=trained)
    steps = np.diff(numbers(examples.steps[0])[0])
    owner = np.repeat(np.arange(len(steps)), steps)
    ratings = list_parts(examples.steps[1])[1]
    rated = ratings.to_numpy(zero_copy_only=False).astype(np.float64)
    return Chunk(
        split,
        context,
        names,
        examples.sequences,
        trained=trained,
        step_owner=owner,
        step_values=rated,
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs to which row ids may refer.

    Attributes:
        first_error: by input, whether its format rates steps up to the first error only.
        named: by input, the name of its source; empty where sources have no names.
    """

    names: tuple[str, ...]
    first_error: tuple[bool, ...]
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What the parts contain of some examples, in the order of the plan.

    Attributes:
        tokens: of each example; of the longer side of a pair.
        place: ``source``, ``line`` (from 1) and ``sequence`` (-1 for none) of each.
        digest: two 64-bit halves of each example's digest, as ``encode`` computed it.
        values: columns of single numbers (``prompt_length``, ``margin``).
        lists: columns of lists by their names in parts: offsets and flat values, as
            ``readback.contents`` has them.
    """

    tokens: Ints
    place: Mapping[str, Ints]
    digest: tuple[Ints, Ints]
    values: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    lists: Mapping[str, tuple[Ints, undo_layout.Ids]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRows:
    """Some training rows: input of metrics of examples and of rows.

    Attributes:
        table: a piece of a shard in the context's layout, or a batch after ``encode`` with its loss
            weights as they are stored; each column in one chunk.
        sources: None while a part is made, where rows have no row ids yet.
        planned: what the examples must be; None while a part is made, and for a finished build.
    """

    table: pa.Table
    context: contract.Context
    sources: Sources | None = None
    planned: Planned | None = None

    def __len__(self) -> int:
        """How many examples."""
        return undo_layout.count(self.table, self.context)

    @property
    def evidence(self) -> str:
        """What is known besides the rows themselves, as ``Context.evidence``."""
        if self.planned is not None:
            return contract.PLANNED
        return contract.ALONE if self.sources is None else contract.STORED

    @property
    def paired(self) -> bool:
        """Whether each example is two sequences, a chosen and a rejected one."""
        return "chosen_ids" in self.table.schema.names

    @cached_property
    def examples(self) -> undo_layout.StoredExamples:
        """Sequences with their labels; pairs have no labels."""
        return undo_layout.examples(self.table, self.context)

    @cached_property
    def sides(self) -> dict[str, undo_layout.Sequences]:
        """The tokens of all examples by the prefix of their metrics: none, or one for each side."""
        if self.paired:
            return undo_layout.sides(self.table, self.context)
        return {"": self.examples.sequences}

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        """Where each training row's row ids begin, and the ids, flat."""
        return undo_layout.names(self.table)

    @cached_property
    def place(self) -> dict[str, Ints]:
        """``source`` (index among the inputs), ``line`` (from 1) and ``sequence`` of each example,
        read from its row id; -1 where it says none."""
        assert self.sources is not None
        ids = self.names[1]
        if self.planned is not None:
            place = self.planned.place
            if ids.equals(undo_layout.names_written(self.sources.names, place)):
                return {name: fitted(values, len(self), -1) for name, values in place.items()}
        found = undo_layout.names_read(self.sources.names, ids)
        return {name: fitted(values, len(self), -1) for name, values in found.items()}


_N = TypeVar("_N", bound=np.generic)


def fitted(values: npt.NDArray[_N], count: int, fill: int) -> npt.NDArray[_N]:
    """The first ``count`` values; missing ones are ``fill``."""
    if len(values) >= count:
        return values[:count]
    return np.concatenate([values, np.full(count - len(values), fill, values.dtype)])


@dataclass(frozen=True, slots=True)
class ShardFile:
    """Input of metrics of a file.

    Attributes:
        table: what pyarrow reads; None where it does not open.
    """

    path: Path
    table: pa.Table | None
    context: contract.Context


# A whole build: sums of its metrics by side, its examples as numbers, and what it declares.


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
        asked: hashes of what examples ask, by side; of builds that keep these apart.
        declared: numbers of ledger, plan and manifest: ``rows_in``, ``rows_accounted``,
            ``examples_made``, ``examples_accounted``, ``examples_kept``, ``tokens_kept``,
            ``trained_kept``, ``duplicates_declared``; ``packed_apart_train`` and ``_test`` where
            packs hold examples of one part each: how many parts were packed.
    """

    sums: "Mapping[tuple[str, str], Tally]"
    names: Callable[[], Iterable[Piece]]
    contents: Callable[[], Iterable[Piece]]
    declared: Mapping[str, int]
    context: contract.Context
    asked: Callable[[], Iterable[Piece]] = tuple

    def _sums(self, table: str, side: str | None) -> "list[Tally]":
        sides = SIDES if side is None else (side,)
        return [self.sums[one, table] for one in sides if (one, table) in self.sums]

    def rows(self, table: str, side: str | None = None) -> int:
        """How many rows a table of metrics has, of one side or of both."""
        return sum(one.rows for one in self._sums(table, side))

    def total(self, table: str, column: str, side: str | None = None) -> int:
        """The sum of a column of a table of metrics, of one side or of both."""
        return sum(one.sums[column] for one in self._sums(table, side))
