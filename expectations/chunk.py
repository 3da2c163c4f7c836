"""Examples as audits read them: a chunk at a time, from a shard of any layout."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import undo_layout
from expectations.contract import Context
from expectations.undo_layout import Bools, Sequences
from stages.columns import IGNORED, Ints, list_parts, numbers


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
        names: list[str] = self.names.take(pa.array(examples[:most], pa.int64())).to_pylist()
        return names

    @functools.cached_property
    def trained_ends(self) -> tuple[Ints, Ints]:
        """First index and end (exclusive) of every run of trained tokens within an example."""
        # +1 where a run starts and -1 where it ends, so starts and ends alternate.
        edges = np.flatnonzero(np.diff(self.trained.view(np.int8), prepend=0, append=0))
        starts, stops = edges[::2], edges[1::2]
        return starts.astype(np.int64), stops.astype(np.int64)


def _pairs(table: pa.Table, split: str, context: Context) -> Chunk:
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


def chunk_of(table: pa.Table, split: str, context: Context) -> Chunk:
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
