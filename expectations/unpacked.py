"""Examples as a trainer sees them, out of a shard of any layout: packs and padding undone."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.contract import Context
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers, offsets_of, whole

Ids = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token ids of many sequences, flat, and where each starts.

    Attributes:
        starts_at: first token that counts as answer, absolute; only for sides of pairs.
    """

    offsets: Ints
    ids: Ids
    starts_at: Ints | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def owner(self, at: Ints) -> Ints:
        """The sequence that holds each flat index."""
        return np.searchsorted(self.offsets, at, side="right") - 1


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
    context: Context
    names: pa.Array
    sequences: Sequences
    trained: Bools
    other: Sequences | None = None
    step_owner: Ints | None = None
    step_values: npt.NDArray[np.float64] | None = None
    margins: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    def named(self, examples: npt.NDArray[np.integer], most: int = 5) -> list[str]:
        """Row ids of the first of some examples."""
        found: list[str] = self.names.take(pa.array(examples[:most], pa.int64())).to_pylist()
        return found

    @functools.cached_property
    def trained_ends(self) -> tuple[Ints, Ints]:
        """First index and end (exclusive) of every run of trained tokens within an example."""
        edges = np.flatnonzero(np.diff(self.trained.view(np.int8), prepend=0, append=0))
        starts, stops = edges[::2], edges[1::2]
        return starts.astype(np.int64), stops.astype(np.int64)


def _column(table: pa.Table, name: str) -> pa.ListArray:
    return whole(table.column(name))


def _unpadded(table: pa.Table, name: str, mask: str) -> tuple[Ints, Ids]:
    offsets, flat = numbers(_column(table, name))
    if mask not in table.schema.names:
        return offsets, flat
    real = numbers(_column(table, mask))[1] == 1
    return offsets_of(count_per_row(offsets, real)), flat[real]


def _pairs(table: pa.Table, split: str, context: Context) -> Chunk:
    shared = table.column("prompt_length").to_numpy().astype(np.int64)
    sides = []
    for side in ("chosen", "rejected"):
        offsets, ids = _unpadded(table, f"{side}_ids", f"{side}_attention_mask")
        sides.append(Sequences(offsets, ids, offsets[:-1] + shared))
    names = whole(table.column("row_id"))
    trained = np.zeros(len(sides[0].ids), bool)
    rated = "margin" in table.schema.names
    margins = table.column("margin").to_numpy() if rated else None
    return Chunk(split, context, names, sides[0], trained, sides[1], margins=margins)


def unpack(table: pa.Table, split: str, context: Context) -> Chunk:
    """The examples of (a part of) a shard of the context's layout."""
    if context.task == "rm":
        return _pairs(table, split, context)
    rows, ids = _unpadded(table, "input_ids", "attention_mask")
    trained = _unpadded(table, "labels", "attention_mask")[1] != IGNORED
    offsets = rows
    if context.layout == "packed":
        offsets = offsets_of(numbers(_column(table, "seq_lengths"))[1])
        names = list_parts(_column(table, "row_ids"))[1]
    else:
        names = whole(table.column("row_id"))
    sequences = Sequences(offsets, ids)
    if context.task != "prm":
        return Chunk(split, context, names, sequences, trained)
    at, positions = numbers(_column(table, "step_positions"))
    owner = np.repeat(np.arange(len(at) - 1), np.diff(at))
    if context.layout == "packed":
        owner = sequences.owner(positions + rows[owner])
    values = list_parts(_column(table, "step_labels"))[1]
    rated = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return Chunk(split, context, names, sequences, trained, None, owner, rated)
