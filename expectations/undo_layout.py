"""Undoes a layout: gets the examples back from the rows of a shard, as a trainer would.

Only the columns themselves are used: ``seq_lengths`` cut a pack, the attention mask strips padding.
No code is shared with the layouts that pack and pad, because their results are checked with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations.contract import PACKS, PADS, PLANNED, STORED, Context
from stages import columns

SIDES = ("chosen_", "rejected_")

Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
_Mask = tuple[Bools, columns.Ints]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token ids of many sequences, flat and unpadded, and where each starts.

    Attributes:
        starts_at: flat index of the first token of each answer; only where audits read pairs.
    """

    offsets: columns.Ints
    ids: Ids
    starts_at: columns.Ints | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def owner(self, at: columns.Ints) -> columns.Ints:
        """The sequence that each flat index is in."""
        # The last offset that is not after the index; empty sequences share the offset of the next.
        return np.searchsorted(self.offsets, at, side="right") - 1

    def per_row(self, tokens: Bools) -> columns.Ints:
        """How many of each sequence's tokens are marked."""
        return columns.count_per_row(self.offsets, tokens)

    def at(self, which: columns.Ints) -> Ids:
        """The id at one flat index for each sequence; -1 where the sequence is empty."""
        if not len(self.ids):
            return np.full(len(self), -1, np.int32)
        found = self.ids[np.minimum(which, len(self.ids) - 1)]
        return np.where(np.diff(self.offsets) > 0, found, np.int32(-1))


@dataclass(frozen=True, slots=True)
class StoredExamples:
    """The examples of a table of SFT or PRM rows.

    Attributes:
        rows: offsets of the training rows among the tokens.
        sequences: tokens; ``labels``: one for each, flat.
        fits: which training rows have as many labels as tokens.
        weights: of the loss, flat, and which training rows have as many of them as tokens; None
            where rows have none.
        steps: positions from the example's first token, and ratings; PRM only.
    """

    rows: columns.Ints
    sequences: Sequences
    labels: Ids
    fits: Bools
    steps: tuple[pa.ListArray, pa.ListArray] | None
    weights: tuple[Floats, Bools] | None = None

    def from_rows(self, values: Bools) -> Bools:
        """The value of each example's training row."""
        row = np.searchsorted(self.rows, self.sequences.offsets[:-1], side="right") - 1
        return values[np.clip(row, 0, len(values) - 1)]


def column(table: pa.Table, name: str) -> pa.ListArray:
    """A column in one piece."""
    return columns.whole(table.column(name))


def examples(table: pa.Table, context: Context) -> StoredExamples:
    """The examples of a batch after ``encode``, or of a shard in the context's layout."""
    mask = _real(column(table, "attention_mask")) if PADS in context.traits else None
    sequences = _unpadded(column(table, "input_ids"), mask)
    rows = sequences.offsets
    labels, fits = _fitted(_unpadded(column(table, "labels"), mask), rows)
    if PACKS in context.traits:
        sequences = Sequences(_cuts(table, rows), sequences.ids)
    steps = None
    if "step_positions" in table.schema.names:
        steps = _step_columns(table, context, rows, sequences.offsets)
    weights = None
    if "loss_weights" in table.schema.names:
        weights = _weights(column(table, "loss_weights"), mask, rows)
    return StoredExamples(
        rows=rows, sequences=sequences, labels=labels, fits=fits, steps=steps, weights=weights
    )


def _cuts(table: pa.Table, rows: columns.Ints) -> columns.Ints:
    """Offsets of the examples in packs; those of the packs where ``seq_lengths`` is wrong."""
    cuts = columns.offsets_of(np.maximum(columns.numbers(column(table, "seq_lengths"))[1], 0))
    return cuts if cuts[-1] == rows[-1] else rows  # judged by seq_lengths_fill_the_pack


def count(table: pa.Table, context: Context) -> int:
    """How many examples a table of rows has."""
    if PACKS not in context.traits:
        return int(table.num_rows)
    return len(_cuts(table, columns.numbers(column(table, "input_ids"))[0])) - 1


def sides(table: pa.Table, context: Context) -> dict[str, Sequences]:
    """Both sides of a table of pairs, unpadded, by the prefix of their columns."""
    by_prefix = {}
    for prefix in SIDES:
        padded = PADS in context.traits
        mask = _real(column(table, f"{prefix}attention_mask")) if padded else None
        by_prefix[prefix] = _unpadded(column(table, f"{prefix}ids"), mask)
    return by_prefix


def names(table: pa.Table) -> tuple[columns.Ints, pa.Array]:
    """Where each training row's row ids begin, and the ids of all examples, flat."""
    if "row_ids" not in table.schema.names:
        row_ids = column(table, "row_id")
        return np.arange(len(row_ids) + 1), row_ids
    return columns.list_parts(column(table, "row_ids"))


def source_names(table: pa.Table) -> pa.Array | None:
    """The name of the source of each example; None where the table has none."""
    if "source" in table.schema.names:
        return column(table, "source")
    return (
        columns.list_parts(column(table, "sources"))[1] if "sources" in table.schema.names else None
    )


def _real(mask: pa.ListArray) -> _Mask:
    """Which values of a padded column are no padding, and where each row starts among these."""
    offsets, flat = columns.numbers(mask)
    real = flat == 1
    return real, columns.offsets_of(counts(offsets, real))


def counts(rows: columns.Ints, marked: Bools) -> columns.Ints:
    """How many values of each row are marked, where many may be."""
    widths = np.diff(rows)
    if len(widths) and widths[0] and (widths == widths[0]).all():
        matrix = marked.view(np.uint8).reshape(-1, widths[0])
        found: columns.Ints = matrix.sum(axis=1, dtype=np.uint32).astype(np.int64)
        return found
    return columns.count_per_row(rows, marked)


def _unpadded(ids: pa.ListArray, mask: _Mask | None) -> Sequences:
    offsets, flat = columns.numbers(ids)
    if mask is None or len(mask[0]) != len(flat):  # judged by padding_in_place
        return Sequences(offsets, flat)
    real, starts = mask
    return Sequences(starts, flat[real])


def _fitted(labels: Sequences, rows: columns.Ints) -> tuple[Ids, Bools]:
    """Labels for all tokens, and which rows have as many labels as tokens.

    Rows that do not fit get -100 everywhere; ``labels_fit_ids`` reports them.
    """
    fits = np.diff(labels.offsets) == np.diff(rows)
    if fits.all():
        return labels.ids, fits
    placed = np.full(int(rows[-1]), columns.IGNORED, np.int32)
    for row in np.flatnonzero(fits):
        placed[rows[row] : rows[row + 1]] = labels.ids[
            labels.offsets[row] : labels.offsets[row + 1]
        ]
    return placed, fits


def _weights(stored: pa.ListArray, mask: _Mask | None, rows: columns.Ints) -> tuple[Floats, Bools]:
    """The same for weights, whose bits are treated as int32, so that one function does both."""
    offsets, values = columns.list_parts(stored)
    bits = values.fill_null(np.nan).to_numpy().view(np.int32)
    flat = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(bits))
    placed, fits = _fitted(_unpadded(flat, mask), rows)
    return placed.view(np.float32), fits


def _step_columns(
    table: pa.Table, context: Context, rows: columns.Ints, sequences: columns.Ints
) -> tuple[pa.ListArray, pa.ListArray]:
    """Positions and labels per example; positions count from the example's first token."""
    positions, ratings = column(table, "step_positions"), column(table, "step_labels")
    if context.traits.isdisjoint((PACKS, PADS)):
        return positions, ratings
    at, flat = columns.numbers(positions)
    row_of = np.repeat(np.arange(len(at) - 1), np.diff(at))
    if PADS in context.traits:
        stored = np.diff(columns.numbers(column(table, "input_ids"))[0])
        # Positions count from the start of the row: take off the padding on the left.
        left = (
            (stored - np.diff(rows)) if context.model.profile.padding_side == "left" else 0 * stored
        )
        return pa.ListArray.from_arrays(
            pa.array(at.astype(np.int32)), pa.array((flat - left[row_of]).astype(np.int32))
        ), ratings
    # A pack's positions count from its start. As indices in the flat ids they are sorted into the
    # examples: the owner of each is the last example that starts at or before it.
    absolute = flat + rows[row_of]
    owner = np.clip(np.searchsorted(sequences, absolute, side="right") - 1, 0, len(sequences) - 2)
    counts = columns.offsets_of(np.bincount(owner, minlength=len(sequences) - 1)).astype(np.int32)
    relative = (absolute - sequences[owner]).astype(np.int32)
    rated_at, values = columns.list_parts(ratings)
    if not np.array_equal(rated_at, at):  # a pack with more or fewer labels than positions
        # Its labels cannot be assigned: all of them go to its first example, where metrics differ.
        first = np.searchsorted(sequences, rows[:-1], side="left")
        spread = np.zeros(len(sequences) - 1, np.int64)
        spread[np.clip(first, 0, len(spread) - 1)] = np.diff(rated_at)
        rated = columns.offsets_of(spread).astype(np.int32)
    else:
        rated = counts
    return (
        pa.ListArray.from_arrays(pa.array(counts), pa.array(relative)),
        pa.ListArray.from_arrays(pa.array(rated), values),
    )


# Row ids as numbers (input, line and sequence), and the texts that such numbers are written as.


PLACE = ("source", "line", "sequence")
# Path, line and sequence of a row id; numbers of more digits are none of ours.
_NAME = r"(?s)^(?P<source>.*):(?P<line>\d{1,18})(?:#(?P<sequence>\d{1,18}))?$"


def names_written(sources: Sequence[str], place: Mapping[str, columns.Ints]) -> pa.Array:
    """The ids of examples.

    Args:
        sources: names of the inputs; ``place``: ``source`` among them, ``line`` from 1 and
            ``sequence``, -1 for none, of each example.
    """
    starts = pa.array([f"{name}:" for name in sources], pa.string())
    which = place["source"]
    first = starts[0] if len(sources) == 1 else starts.take(pa.array(which))
    ids = pc.binary_join_element_wise(first, pa.array(place["line"]).cast(pa.string()), "")
    fanned = place["sequence"] >= 0
    if not fanned.any():
        return ids
    numbers = pa.array(place["sequence"]).cast(pa.string())
    ends = pc.binary_join_element_wise("#", numbers, "")
    return pc.binary_join_element_wise(ids, pc.if_else(pa.array(fanned), ends, ""), "")


def names_read(sources: Sequence[str], ids: pa.Array) -> dict[str, columns.Ints]:
    """``source``, ``line`` and ``sequence`` of each id; -1 where it says none."""
    parts = pc.extract_regex(ids, _NAME)  # null where it is no such id
    known = parts.is_valid()

    def whole(values: pa.Array) -> columns.Ints:
        return np.asarray(pc.fill_null(values.cast(pa.int64()), -1).to_numpy())

    def number(name: str) -> columns.Ints:
        text = parts.field(name)  # empty where it is left out
        return whole(pc.if_else(pc.and_(known, pc.not_equal(text, "")), text, None))

    ordinals = pc.index_in(parts.field("source"), pa.array(sources, pa.string()))
    source = whole(pc.if_else(known, ordinals, None))
    return {"source": source, "line": number("line"), "sequence": number("sequence")}


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
    planned: tuple[columns.Ints, columns.Ints] | None = None

    @property
    def evidence(self) -> str:
        """What is known besides the index and the shards, as ``Context.evidence``."""
        return STORED if self.planned is None else PLANNED

    @cached_property
    def packs(self) -> tuple[columns.Ints, columns.Ints]:
        """Where each pack's examples begin, and the examples, flat."""
        offsets, values = columns.list_parts(column(self.table, "examples"))
        return offsets, values.to_numpy()

    @property
    def tokens(self) -> columns.Ints:
        """What the index says of each pack's tokens."""
        stored: columns.Ints = column(self.table, "tokens").to_numpy().astype(np.int64)
        return stored
