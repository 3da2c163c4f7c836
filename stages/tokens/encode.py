"""Rendered rows to ids and labels: one stage for each kind of example.

A row is an outline and its own texts, or segments. Rows of outlines are encoded as columns (see
``outline_tokens``), the others segment by segment (see ``segment_encoder``), in the same batch and
to the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.chat_template import loss_weights
from stages.chat_template.segments import CONTROL, MARKER, TRAINED
from stages.columns import IGNORED, Ints, count_per_row, list_parts, make_list, offsets_of
from stages.contract import Batch
from stages.counted import counted
from stages.profile import TargetModel
from stages.tokens.digest import digests, weighted_digests
from stages.tokens.outline_tokens import segments_of
from stages.tokens.segment_encoder import Encoded, SegmentEncoder

Bools = npt.NDArray[np.bool_]
_COUNTS = ("length", "trained", "controls", "truncated", "merged_cuts", "digest", "encoded")
COLUMNS, SEGMENTS = "columns", "segments"  # the ways in which rows are encoded


def _put(batch: Batch, name: str, values: npt.NDArray[np.generic]) -> Batch:
    return columns.put(batch, name, pa.array(values))


def _too_long(batch: Batch, lengths: Ints, limit: int, name: str = "") -> Batch:
    """Refuse rows that are above the limit."""
    over = lengths > limit
    details = [f"{n} tokens{name}; --max-length is {limit}" for n in lengths[over]]
    return columns.refuse(batch, over, "too_long", details)


def _by(encode: Callable[[Batch], Batch], way: str, batch: Batch) -> Batch:
    return columns.put(encode(batch), "encoded", pa.repeat(pa.scalar(way), batch.num_rows))


def _both_ways(
    batch: Batch,
    encoder: SegmentEncoder,
    prefixes: Sequence[str],
    fast: Callable[[Batch], Batch],
    careful: Callable[[Batch], Batch],
) -> Batch:
    """Encode each row of a batch in the way that it allows.

    Args:
        prefixes: of the columns of its outlines.
        fast: for rows of outlines; ``careful``: for all rows.
    """
    plain = np.full(batch.num_rows, encoder.outlines is not None)
    for prefix in prefixes:
        if encoder.outlines is None or f"{prefix}outline" not in batch.schema.names:
            return _by(careful, SEGMENTS, batch)
        plain &= encoder.outlines.takes(batch.column(f"{prefix}outline"))
    made = _by(fast, COLUMNS, batch if plain.all() else batch.filter(pa.array(plain)))
    if encoder.trims:  # which segments stay is decided segment by segment
        over = made.column("length").to_numpy() > encoder.max_length
        if over.any():
            plain[np.flatnonzero(plain)[over]] = False
            made = made.filter(pa.array(~over))
    if plain.all():
        return made
    others = _by(careful, SEGMENTS, batch.filter(pa.array(~plain)))
    order = np.argsort(np.concatenate([np.flatnonzero(plain), np.flatnonzero(~plain)]))
    together = pa.Table.from_batches([made, others.select(made.schema.names)])
    return together.take(pa.array(order)).combine_chunks().to_batches()[0]


def _first_untrained(folded: npt.NDArray[np.int32], offsets: Ints) -> npt.NDArray[np.int32]:
    """No row's first token is trained: a trainer shifts labels by one, so in a pack it would be
    predicted from the last token of the example before."""
    # Only rows with tokens: the start of an empty row is the first token of the next one.
    firsts = offsets[:-1][np.diff(offsets) > 0]
    trained = firsts[folded[firsts] < 0]
    if len(trained):
        folded = folded.copy()
        folded[trained] = ~folded[trained]
    return folded


@dataclass
class Encode:
    """SFT: segments to ``folded`` (ids and labels in one column, see ``folded_labels``), and
    ``loss_weights`` of rows that have some."""

    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("segments", "segment_weights")
    writes: tuple[str, ...] = ("folded", "loss_weights", *_COUNTS)

    def __call__(self, batch: Batch) -> Batch:
        return _both_ways(batch, self.encoder, ("",), fast=self._outlines, careful=self._segments)

    def _outlines(self, batch: Batch) -> Batch:
        assert self.encoder.outlines is not None
        encoded = self.encoder.outlines(batch.column("outline"), batch.column("texts"))
        offsets, folded = encoded.offsets, _first_untrained(encoded.folded, encoded.offsets)
        batch = columns.put(batch, "folded", make_list(offsets, pa.array(folded)))
        batch = columns.put(batch, "loss_weights", loss_weights.lists({}, batch.num_rows))
        batch = _put(batch, "length", np.diff(offsets))
        batch = _put(batch, "trained", count_per_row(offsets, folded < 0))
        batch = _put(batch, "controls", encoded.controls)
        batch = _put(batch, "truncated", np.zeros(batch.num_rows, np.int32))
        batch = _put(batch, "merged_cuts", encoded.merged_cuts)
        batch = columns.put(batch, "digest", digests((offsets, folded)))
        return _too_long(batch, np.diff(offsets), self.encoder.max_length)

    def _segments(self, batch: Batch) -> Batch:
        encoded = self.encoder(segments_of(batch, ""))
        trained = (encoded.kinds & TRAINED) > 0
        folded = np.where(trained, ~encoded.ids, encoded.ids)
        folded = _first_untrained(folded, encoded.offsets)
        labels = np.where(folded < 0, encoded.ids, np.int32(IGNORED))
        batch = columns.put(batch, "folded", make_list(encoded.offsets, pa.array(folded)))
        segment_weights = batch.column("segment_weights")
        column, flat = loss_weights.of_tokens(
            segment_weights,
            segments=encoded.segments,
            lengths=encoded.lengths,
            offsets=encoded.offsets,
            labels=labels,
        )
        batch = columns.put(batch, "loss_weights", column)
        batch = _put_counts(batch, encoded, labels)
        digest = (
            digests((encoded.offsets, folded))
            if flat is None
            else weighted_digests(encoded.offsets, folded=folded, trained=folded < 0, weights=flat)
        )
        batch = columns.put(batch, "digest", digest)
        return _too_long(batch, np.diff(encoded.offsets), self.encoder.max_length)


def _put_counts(batch: Batch, encoded: Encoded, labels: npt.NDArray[np.int32]) -> Batch:
    control = (encoded.kinds & CONTROL) > 0
    batch = _put(batch, "length", np.diff(encoded.offsets))
    batch = _put(batch, "trained", count_per_row(encoded.offsets, labels != IGNORED))
    batch = _put(batch, "controls", count_per_row(encoded.offsets, control))
    batch = _put(batch, "truncated", encoded.truncated)
    return _put(batch, "merged_cuts", encoded.merged_cuts)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the pairs of a batch: ids of all rows, and what is counted per row."""

    ids: npt.NDArray[np.int32]
    trained: Bools
    offsets: Ints
    controls: Ints
    truncated: Ints
    merged_cuts: Ints


@dataclass
class EncodePair:
    """RM: both sides' segments to ids, and how many tokens they share before training starts."""

    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("chosen_segments", "rejected_segments")
    writes: tuple[str, ...] = ("chosen_ids", "rejected_ids", "prompt_length", *_COUNTS)

    def __call__(self, batch: Batch) -> Batch:
        return _both_ways(
            batch,
            self.encoder,
            ("chosen_", "rejected_"),
            fast=lambda rows: self._put(rows, self._outlines(rows)),
            careful=lambda rows: self._put(rows, [self._segments(rows, side) for side in _SIDES]),
        )

    def _outlines(self, batch: Batch) -> list[_Side]:
        """Both sides in one call, so that a prompt is encoded once."""
        assert self.encoder.outlines is not None
        outlines = pa.chunked_array([batch.column(f"{side}_outline") for side in _SIDES])
        encoded = self.encoder.outlines(
            outlines.unify_dictionaries().combine_chunks(),
            pa.concat_arrays([batch.column(f"{side}_texts") for side in _SIDES]),
            repeat=True,
        )
        count = batch.num_rows
        sides = []
        for rows in (slice(0, count), slice(count, 2 * count)):
            offsets = encoded.offsets[rows.start : rows.stop + 1]
            folded = encoded.folded[offsets[0] : offsets[-1]]
            side = _Side(
                ids=folded ^ (folded >> 31),
                trained=folded < 0,
                offsets=offsets - offsets[0],
                controls=encoded.controls[rows],
                truncated=np.zeros(count, np.int64),
                merged_cuts=encoded.merged_cuts[rows],
            )
            sides.append(side)
        return sides

    def _segments(self, batch: Batch, side: str) -> _Side:
        encoded = self.encoder(segments_of(batch, f"{side}_"))
        return _Side(
            ids=encoded.ids,
            trained=(encoded.kinds & TRAINED) > 0,
            offsets=encoded.offsets,
            controls=count_per_row(encoded.offsets, (encoded.kinds & CONTROL) > 0),
            truncated=encoded.truncated,
            merged_cuts=encoded.merged_cuts,
        )

    def _put(self, batch: Batch, sides: Sequence[_Side]) -> Batch:
        prompts = []
        for name, side in zip(_SIDES, sides, strict=True):
            batch = columns.put(batch, f"{name}_ids", make_list(side.offsets, pa.array(side.ids)))
            # The index of each trained token, and a number beyond all of them for the others, so
            # that the minimum over a row is its first trained token.
            first = np.where(side.trained, np.arange(len(side.trained)), len(side.trained))
            prompts.append(_first_trained(side.offsets, first))
        lengths = [np.diff(side.offsets) for side in sides]
        trained = [count_per_row(side.offsets, side.trained) for side in sides]
        batch = _put(batch, "prompt_length", np.minimum(*prompts))
        batch = _put(batch, "length", np.maximum(*lengths))
        batch = _put(batch, "trained", trained[0] + trained[1])
        for name in ("controls", "truncated", "merged_cuts"):
            batch = _put(batch, name, getattr(sides[0], name) + getattr(sides[1], name))
        batch = columns.put(batch, "digest", digests(*((s.offsets, s.ids) for s in sides)))
        for name, length in zip(_SIDES, lengths, strict=True):
            batch = _too_long(batch, length, self.encoder.max_length, f" on the {name} side")
        return batch


_SIDES = ("chosen", "rejected")


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
        return _both_ways(batch, self.encoder, ("",), fast=self._outlines, careful=self._segments)

    def _outlines(self, batch: Batch) -> Batch:
        assert self.encoder.outlines is not None
        encoded = self.encoder.outlines(batch.column("outline"), batch.column("texts"))
        offsets, values = list_parts(batch.column("step_labels"))
        ratings = values.to_numpy(zero_copy_only=False).astype(np.float32)
        batch = _put(batch, "controls", encoded.controls)
        batch = _put(batch, "truncated", np.zeros(batch.num_rows, np.int32))
        batch = _put(batch, "merged_cuts", encoded.merged_cuts)
        # Nothing is trained, so what is folded are the ids themselves.
        sides = ((encoded.offsets, encoded.folded), (offsets, ratings))
        return self._rated(batch, *sides, expected=encoded.markers)

    def _segments(self, batch: Batch) -> Batch:
        encoded = self.encoder(segments_of(batch, ""))
        batch, ratings, offsets = self._kept_labels(batch, encoded)
        control = (encoded.kinds & CONTROL) > 0
        batch = _put(batch, "controls", count_per_row(encoded.offsets, control))
        batch = _put(batch, "truncated", encoded.truncated)
        batch = _put(batch, "merged_cuts", encoded.merged_cuts)
        placed = count_per_row(encoded.offsets, (encoded.kinds & MARKER) > 0)
        sides = ((encoded.offsets, encoded.ids), (offsets, ratings))
        return self._rated(batch, *sides, expected=placed)

    def _rated(
        self,
        batch: Batch,
        sequences: tuple[Ints, npt.NDArray[np.int32]],
        rated: tuple[Ints, npt.NDArray[np.float32]],
        expected: Ints,
    ) -> Batch:
        """The columns of sequences whose ids are known.

        Args:
            sequences: where each row's ids start, and the ids; ``rated``: the same for ratings.
            expected: markers that were put into each row.
        """
        (starts, ids), (label_starts, ratings) = sequences, rated
        model = self.model
        # The markers are counted twice, from the segments and from the ids, so that a text that
        # became the marker's id, or a marker that is not one id, refuses the row.
        positions = np.flatnonzero(ids == model.step_id)
        rows = np.searchsorted(starts, positions, side="right") - 1
        counts = np.bincount(rows, minlength=batch.num_rows)
        wanted = np.diff(label_starts)
        wrong = (counts != wanted) | (expected != wanted)
        labels = np.full(len(ids), IGNORED, np.int32)
        tokens = np.where(ratings >= 0.5, model.good_id, model.bad_id).astype(np.int32)
        known = np.where(np.isnan(ratings), np.int32(IGNORED), tokens)
        # One rating per marker, in order; rows with the wrong number are left out on both sides.
        labels[positions[~wrong[rows]]] = known[~np.repeat(wrong, wanted)]
        details = [
            f"{counted(c, 'marker')} among the ids, {counted(e, 'step')}, {counted(w, 'label')}"
            for c, e, w in zip(counts[wrong], expected[wrong], wanted[wrong], strict=True)
        ]
        batch = columns.refuse(batch, wrong, "marker_count", details)
        relative = pa.array((positions - starts[rows]).astype(np.int32))
        batch = columns.put(batch, "input_ids", make_list(starts, pa.array(ids)))
        batch = columns.put(batch, "labels", make_list(starts, pa.array(labels)))
        batch = columns.put(batch, "step_positions", make_list(offsets_of(counts), relative))
        batch = _put(batch, "length", np.diff(starts))
        batch = _put(batch, "trained", count_per_row(starts, labels != IGNORED))
        # NaN has many bit patterns; -1, which is no rating, has one.
        floats = np.nan_to_num(ratings, nan=-1.0).astype(np.float32).view(np.int32)
        digest = digests((starts, ids), (starts, labels), (label_starts, floats))
        batch = columns.put(batch, "digest", digest)
        return _too_long(batch, np.diff(starts), self.encoder.max_length)

    def _kept_labels(
        self, batch: Batch, encoded: Encoded
    ) -> tuple[Batch, npt.NDArray[np.float32], Ints]:
        """The labels of the steps that stayed, as a column and as floats with NaN for null."""
        offsets, values = list_parts(batch.column("step_labels"))
        if not encoded.kept.all():
            bounds, segments = list_parts(segments_of(batch, ""))
            markers = (segments.field(1).to_numpy() & MARKER) > 0
            # Each marker has one label: the labels of dropped markers are dropped.
            values = values.filter(pa.array(encoded.kept[markers]))
            offsets = offsets_of(count_per_row(bounds, encoded.kept & markers))
            batch = columns.put(batch, "step_labels", make_list(offsets, values))
        floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
        return batch, floats, offsets
