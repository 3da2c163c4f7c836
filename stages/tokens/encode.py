"""Segments to ids and labels.

Each distinct text of a batch is encoded once; rows are then put together from the pieces by one
``take`` of Arrow. Labels come from the kinds of the segments: no character offsets are mapped to
tokens, no prefixes are encoded twice to compare them, and no Python runs per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.chat_template import loss_weights
from stages.chat_template.segments import CONTROL, MARKER, TRAINED
from stages.columns import (
    IGNORED,
    Ints,
    count_per_row,
    list_parts,
    make_list,
    numbers,
    offsets_of,
    sum_per_row,
)
from stages.contract import Batch
from stages.models.encoders import Encoder
from stages.models.profile import TargetModel
from stages.tokens import truncation
from stages.tokens.digest import digests, weighted_digests
from stages.tokens.folded_labels import folded_ids
from stages.tokens.merged_cuts import MergedCuts
from stages.tokens.swallowed_whitespace import Edges


@dataclass(slots=True)
class Encoded:
    """A batch's sequences, flat.

    Attributes:
        ids: int32, all rows one after the other.
        kinds: uint8, the kind of the segment that each token comes from.
        offsets: where each row's tokens start.
        kept: which segments ``--too-long`` leaves.
        segments: where each row's segments start; ``lengths``: tokens of each, 0 where dropped.
        truncated: tokens that were dropped, per row.
        merged_cuts: per row, how often the tokenizer would have merged across a cut.
    """

    ids: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint8]
    offsets: Ints
    kept: npt.NDArray[np.bool_]
    segments: Ints
    lengths: Ints
    truncated: Ints
    merged_cuts: Ints


class SegmentEncoder:
    """Encodes a segments column."""

    def __init__(self, model: TargetModel, encoder: Encoder, max_length: int, policy: str) -> None:
        self._encoder = encoder
        self._max_length = max_length
        self._policy = policy
        self._names = pa.array(list(model.controls), pa.string())
        self._control_ids = np.fromiter(model.controls.values(), np.int32)
        self._edges = Edges(model.tokenizer_json, model.controls)
        self._merged_cuts = MergedCuts(encoder)

    def _pieces(self, texts: pa.Array, kinds: npt.NDArray[np.uint8]) -> pa.ListArray:
        """Ids of each segment."""
        control = (kinds & CONTROL) > 0
        mask = pa.array(control)
        distinct = pc.dictionary_encode(texts.filter(pa.array(~control)))
        ids, starts = self._encoder.encode(distinct.dictionary.to_pylist())
        names = pc.index_in(texts.filter(mask), value_set=self._names)
        # One pool of ids: first each control token by itself, then each distinct text. A segment is
        # then a place in the pool, and Arrow copies the ids of all segments in one ``take``.
        known = len(self._control_ids)
        pool = make_list(
            np.concatenate([np.arange(known, dtype=np.int64), starts + known]),
            pa.array(np.concatenate([self._control_ids, ids])),
        )
        place = np.empty(len(texts), np.int32)
        place[control] = names.to_numpy()
        place[~control] = distinct.indices.to_numpy() + known
        return pool.take(pa.array(place))

    def __call__(self, segments: pa.ListArray) -> Encoded:
        offsets, flat = list_parts(segments)
        kinds = flat.field(1).to_numpy()
        swallowed = self._edges(flat.field(0), kinds, offsets)
        pieces = self._pieces(swallowed.texts, kinds)
        starts, ids = numbers(pieces)
        lengths = np.diff(starts)
        merged = self._merged_cuts.per_row(
            swallowed=swallowed, kinds=kinds, pieces=(ids, starts), offsets=offsets
        )
        kept = truncation.keep(
            self._policy, kinds=kinds, lengths=lengths, offsets=offsets, limit=self._max_length
        )
        truncated = sum_per_row(offsets, np.where(kept, 0, lengths))
        token_kinds = np.repeat(kinds, lengths)
        if not kept.all():
            tokens = np.repeat(kept, lengths)
            ids, token_kinds = ids[tokens], token_kinds[tokens]
            lengths = np.where(kept, lengths, 0)
        row_offsets = offsets_of(sum_per_row(offsets, lengths))
        return Encoded(
            ids=ids,
            kinds=token_kinds,
            offsets=row_offsets,
            kept=kept,
            segments=offsets,
            lengths=lengths,
            truncated=truncated,
            merged_cuts=merged,
        )

    def too_long(self, batch: Batch, encoded: Encoded, name: str) -> Batch:
        """Refuse rows that are still above the limit."""
        lengths = np.diff(encoded.offsets)
        over = lengths > self._max_length
        details = [f"{n} tokens{name}; --max-length is {self._max_length}" for n in lengths[over]]
        return columns.refuse(batch, over, "too_long", details)


def _put(batch: Batch, name: str, values: npt.NDArray[np.generic]) -> Batch:
    return columns.put(batch, name, pa.array(values))


def _labels(encoded: Encoded, trained: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """The ids where trained, but never at a row's first token: a trainer shifts labels by one, so
    in a pack it would predict that token from the last token of the example before."""
    labels = np.where(trained, encoded.ids, np.int32(IGNORED))
    # Only rows with tokens: the start of an empty row is the first token of the next one.
    firsts = encoded.offsets[:-1][np.diff(encoded.offsets) > 0]
    labels[firsts] = IGNORED
    return labels


def _put_counts(batch: Batch, encoded: Encoded, labels: npt.NDArray[np.int32]) -> Batch:
    control = (encoded.kinds & CONTROL) > 0
    trained = labels != IGNORED
    batch = _put(batch, "length", np.diff(encoded.offsets))
    batch = _put(batch, "trained", count_per_row(encoded.offsets, trained))
    batch = _put(batch, "controls", count_per_row(encoded.offsets, control))
    batch = _put(batch, "truncated", encoded.truncated)
    return _put(batch, "merged_cuts", encoded.merged_cuts)


_COUNTS = ("length", "trained", "controls", "truncated", "merged_cuts", "digest")


@dataclass
class Encode:
    """SFT: segments to ``input_ids``, ``labels``, and ``loss_weights`` of rows that have some."""

    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("segments", "segment_weights")
    writes: tuple[str, ...] = ("input_ids", "labels", "loss_weights", *_COUNTS)

    def __call__(self, batch: Batch) -> Batch:
        encoded = self.encoder(batch.column("segments"))
        labels = _labels(encoded, (encoded.kinds & TRAINED) > 0)
        batch = columns.put(batch, "input_ids", make_list(encoded.offsets, pa.array(encoded.ids)))
        batch = columns.put(batch, "labels", make_list(encoded.offsets, pa.array(labels)))
        batch = _put_counts(batch, encoded, labels)
        folded = folded_ids(encoded.ids, labels)
        segment_weights = batch.column("segment_weights")
        column, flat = loss_weights.of_tokens(
            segment_weights,
            segments=encoded.segments,
            lengths=encoded.lengths,
            offsets=encoded.offsets,
            labels=labels,
        )
        batch = columns.put(batch, "loss_weights", column)
        digest = (
            digests((encoded.offsets, folded))
            if flat is None
            else weighted_digests(
                encoded.offsets, folded=folded, trained=labels != IGNORED, weights=flat
            )
        )
        batch = columns.put(batch, "digest", digest)
        return self.encoder.too_long(batch, encoded, "")


@dataclass
class EncodePair:
    """RM: both sides' segments to ids, and how many tokens they share before training starts."""

    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("chosen_segments", "rejected_segments")
    writes: tuple[str, ...] = ("chosen_ids", "rejected_ids", "prompt_length", *_COUNTS)

    def __call__(self, batch: Batch) -> Batch:
        sides = [self.encoder(batch.column(name)) for name in self.reads]
        prompts = []
        for name, side in zip(("chosen", "rejected"), sides, strict=True):
            ids = make_list(side.offsets, pa.array(side.ids))
            batch = columns.put(batch, f"{name}_ids", ids)
            trained = (side.kinds & TRAINED) > 0
            # The index of each trained token, and a number beyond all of them for the others, so
            # that the minimum over a row is its first trained token.
            first = np.where(trained, np.arange(len(trained)), len(trained))
            prompts.append(_first_trained(side.offsets, first))
        batch = _put(batch, "prompt_length", np.minimum(*prompts))
        lengths = [np.diff(side.offsets) for side in sides]
        batch = _put(batch, "length", np.maximum(*lengths))
        trained_count = [count_per_row(side.offsets, (side.kinds & TRAINED) > 0) for side in sides]
        batch = _put(batch, "trained", sum(trained_count[1:], trained_count[0]))
        controls = [count_per_row(side.offsets, (side.kinds & CONTROL) > 0) for side in sides]
        batch = _put(batch, "controls", controls[0] + controls[1])
        batch = _put(batch, "truncated", sides[0].truncated + sides[1].truncated)
        batch = _put(batch, "merged_cuts", sides[0].merged_cuts + sides[1].merged_cuts)
        batch = columns.put(batch, "digest", digests(*((s.offsets, s.ids) for s in sides)))
        for name, side in zip(("chosen", "rejected"), sides, strict=True):
            batch = self.encoder.too_long(batch, side, f" on the {name} side")
        return batch


def _first_trained(offsets: Ints, first: npt.NDArray[np.int64]) -> Ints:
    """Index within each row of its first trained token; the row's length when it has none."""
    lengths = np.diff(offsets)
    # reduceat takes the minimum from each offset to the next. It needs an element at every offset,
    # also at the end where the last row is empty, and gives nonsense for empty rows, which the
    # outer minimum with their length 0 corrects.
    padded = np.append(first, np.iinfo(np.int64).max)
    lowest = np.minimum.reduceat(padded, offsets[:-1]) if len(lengths) else lengths
    return np.minimum(lowest - offsets[:-1], lengths)


@dataclass
class EncodeSteps:
    """PRM: segments to ids; labels stand at the markers and are read there, unshifted."""

    model: TargetModel
    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("segments", "step_labels")
    writes: tuple[str, ...] = ("input_ids", "labels", "step_positions", "step_labels", *_COUNTS)

    def __call__(self, batch: Batch) -> Batch:
        encoded = self.encoder(batch.column("segments"))
        model = self.model
        batch, ratings, label_offsets = self._kept_labels(batch, encoded)
        # The markers are counted twice, from the segments and from the ids, so that a text that
        # became the marker's id, or a marker that is not one id, refuses the row.
        placed = (encoded.kinds & MARKER) > 0
        positions = np.flatnonzero(encoded.ids == model.step_id)
        rows = np.searchsorted(encoded.offsets, positions, side="right") - 1
        counts = np.bincount(rows, minlength=batch.num_rows)
        wanted = np.diff(label_offsets)
        expected = count_per_row(encoded.offsets, placed)
        wrong = (counts != wanted) | (expected != wanted)
        labels = np.full(len(encoded.ids), IGNORED, np.int32)
        tokens = np.where(ratings >= 0.5, model.good_id, model.bad_id).astype(np.int32)
        rated = np.where(np.isnan(ratings), np.int32(IGNORED), tokens)
        # One rating per marker, in order; rows with the wrong number are left out on both sides.
        labels[positions[~wrong[rows]]] = rated[~np.repeat(wrong, wanted)]
        details = [
            f"{c} markers among the ids, {e} steps, {w} labels"
            for c, e, w in zip(counts[wrong], expected[wrong], wanted[wrong], strict=True)
        ]
        batch = columns.refuse(batch, wrong, "marker_count", details)
        relative = pa.array((positions - encoded.offsets[rows]).astype(np.int32))
        batch = columns.put(batch, "input_ids", make_list(encoded.offsets, pa.array(encoded.ids)))
        batch = columns.put(batch, "labels", make_list(encoded.offsets, pa.array(labels)))
        batch = columns.put(batch, "step_positions", make_list(offsets_of(counts), relative))
        batch = _put_counts(batch, encoded, labels)
        # NaN has many bit patterns; -1, which is no rating, has one.
        floats = np.nan_to_num(ratings, nan=-1.0).astype(np.float32).view(np.int32)
        sides = ((encoded.offsets, encoded.ids), (encoded.offsets, labels), (label_offsets, floats))
        batch = columns.put(batch, "digest", digests(*sides))
        return self.encoder.too_long(batch, encoded, "")

    def _kept_labels(
        self, batch: Batch, encoded: Encoded
    ) -> tuple[Batch, npt.NDArray[np.float32], Ints]:
        """The labels of the steps that stayed, as a column and as floats with NaN for null."""
        offsets, values = list_parts(batch.column("step_labels"))
        if not encoded.kept.all():
            bounds, segments = list_parts(batch.column("segments"))
            markers = (segments.field(1).to_numpy() & MARKER) > 0
            # Each marker has one label: the labels of dropped markers are dropped.
            values = values.filter(pa.array(encoded.kept[markers]))
            offsets = offsets_of(count_per_row(bounds, encoded.kept & markers))
            batch = columns.put(batch, "step_labels", make_list(offsets, values))
        floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
        return batch, floats, offsets
