"""Segments to ids and labels.

Each distinct text of a batch is encoded once; rows are then put together from the pieces by one
gather in Arrow. Labels come from the segments' kinds: no offsets, no prefix diffs, no Python per
token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns, fit, weights
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
from stages.digest import digests, weighted_digests
from stages.edges import Edges, Swallowed
from stages.encoders import Encoder
from stages.fold import folded_ids
from stages.profile import TargetModel
from stages.segments import CONTROL, MARKER, TRAINED


@dataclass(slots=True)
class Encoded:
    """A batch's sequences, flat.

    Attributes:
        ids: int32, all rows one after the other.
        kinds: uint8, the kind of the segment that each token comes from.
        offsets: where each row's tokens start.
        kept: which segments stayed under ``--too-long``.
        segments: where each row's segments start; ``lengths``: tokens of each, 0 where it went.
        truncated: tokens that went, per row.
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


_STARTS = ("a", "The", "I", "0", "12", "é", "я", "好", "한", "ا")
_MAX_LEFT = 4096
_ALNUM = np.zeros(256, bool)
_ALNUM[
    np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)
] = True


def _may_merge(texts: pa.StringArray, which: Ints) -> npt.NDArray[np.bool_]:
    """Which texts begin with something that is neither a letter nor a digit."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset :][: len(texts) + 1]
    content = np.append(np.frombuffer(data or b"", np.uint8), np.uint8(0))
    filled = starts[which + 1] > starts[which]
    odd = filled & ~_ALNUM[content[np.where(filled, starts[which], 0)]]
    unsure = np.flatnonzero(odd)  # letters beyond ASCII among them
    if len(unsure):
        starting_odd = texts.take(pa.array(which[unsure]))
        letters = pc.match_substring_regex(starting_odd, "^[\\p{L}\\p{N}]")
        odd[unsure] = ~letters.to_numpy(zero_copy_only=False)
    return odd


class SegmentEncoder:
    """Encodes a segments column."""

    def __init__(self, model: TargetModel, encoder: Encoder, max_length: int, policy: str) -> None:
        self._encoder = encoder
        self._max_length = max_length
        self._policy = policy
        self._names = pa.array(list(model.controls), pa.string())
        self._safe: dict[str, bool] = {}
        self._control_ids = np.fromiter(model.controls.values(), np.int32)
        self._edges = Edges(model.tokenizer_json, model.controls)

    def _pieces(self, texts: pa.Array, kinds: npt.NDArray[np.uint8]) -> pa.ListArray:
        """Ids of each segment."""
        control = (kinds & CONTROL) > 0
        mask = pa.array(control)
        distinct = pc.dictionary_encode(texts.filter(pa.array(~control)))
        ids, starts = self._encoder.encode(distinct.dictionary.to_pylist())
        names = pc.index_in(texts.filter(mask), value_set=self._names)
        known = len(self._control_ids)
        pool = make_list(
            np.concatenate([np.arange(known, dtype=np.int64), starts + known]),
            pa.array(np.concatenate([self._control_ids, ids])),
        )
        place = np.empty(len(texts), np.int32)
        place[control] = names.to_numpy()
        place[~control] = distinct.indices.to_numpy() + known
        return pool.take(pa.array(place))

    def _merges_letters(self, texts: pa.StringArray, cuts: Ints) -> npt.NDArray[np.bool_]:
        """At which cuts a letter or a digit would merge with the text before."""
        if not len(cuts):
            return np.zeros(0, bool)
        before = texts.take(pa.array(cuts - 1)).dictionary_encode()
        verdicts = []
        for left in before.dictionary.to_pylist():
            if left not in self._safe:
                if len(self._safe) > _MAX_LEFT:
                    self._safe.clear()
                apart = self._encoder.encode([left, *_STARTS])[1]
                joint = self._encoder.encode([left + start for start in _STARTS])[1]
                alone = np.diff(apart)
                self._safe[left] = bool((np.diff(joint) == alone[0] + alone[1:]).all())
            verdicts.append(not self._safe[left])
        merges: npt.NDArray[np.bool_] = np.array(verdicts, bool)[before.indices.to_numpy()]
        return merges

    def _merged_cuts(
        self,
        swallowed: Swallowed,
        kinds: npt.NDArray[np.uint8],
        pieces: tuple[npt.NDArray[np.int32], Ints],
        offsets: Ints,
    ) -> Ints:
        """Per row, the cuts at which encoding both sides as one text would give other ids.

        Args:
            pieces: ids of all segments, flat, and where each segment's start.

        Where letters and digits were seen not to merge with the text before a cut, only texts that
        begin otherwise are encoded again, together with what stands before them.
        """
        texts = swallowed.texts
        plain = (kinds & CONTROL) == 0
        starts = plain.copy()
        starts[1:] &= plain[:-1]
        starts[offsets[:-1][offsets[:-1] < len(starts)]] = False
        cuts = np.flatnonzero(starts)
        rows = np.searchsorted(offsets, cuts, side="right") - 1
        counts = np.zeros(len(offsets) - 1, np.int64)
        odd = _may_merge(texts, cuts) | self._merges_letters(texts, cuts)
        cuts, rows = cuts[odd], rows[odd]
        if len(cuts):
            left = texts.take(pa.array(cuts - 1))
            joint = pc.binary_join_element_wise(left, texts.take(pa.array(cuts)), "")
            joint = swallowed.joined(joint, cuts)
            ids, together = self._encoder.encode(joint.to_pylist())
            for number, (cut, row) in enumerate(zip(cuts.tolist(), rows.tolist(), strict=True)):
                apart = pieces[0][pieces[1][cut - 1] : pieces[1][cut + 1]]
                counts[row] += not np.array_equal(
                    apart, ids[together[number] : together[number + 1]]
                )
        return counts

    def __call__(self, segments: pa.ListArray) -> Encoded:
        offsets, flat = list_parts(segments)
        kinds = flat.field(1).to_numpy()
        swallowed = self._edges(flat.field(0), kinds, offsets)
        pieces = self._pieces(swallowed.texts, kinds)
        starts, ids = numbers(pieces)
        lengths = np.diff(starts)
        merged = self._merged_cuts(swallowed, kinds, (ids, starts), offsets)
        kept = fit.keep(self._policy, kinds, lengths, offsets, self._max_length)
        truncated = sum_per_row(offsets, np.where(kept, 0, lengths))
        token_kinds = np.repeat(kinds, lengths)
        if not kept.all():
            tokens = np.repeat(kept, lengths)
            ids, token_kinds = ids[tokens], token_kinds[tokens]
            lengths = np.where(kept, lengths, 0)
        row_offsets = offsets_of(sum_per_row(offsets, lengths))
        return Encoded(ids, token_kinds, row_offsets, kept, offsets, lengths, truncated, merged)

    def too_long(self, batch: Batch, encoded: Encoded, name: str) -> Batch:
        """Refuse rows that are still above the limit."""
        lengths = np.diff(encoded.offsets)
        over = lengths > self._max_length
        details = [f"{n} tokens{name}; --max-length is {self._max_length}" for n in lengths[over]]
        return columns.refuse(batch, over, "too_long", details)


def _put(batch: Batch, name: str, values: npt.NDArray[np.generic]) -> Batch:
    return columns.put(batch, name, pa.array(values))


def _labels(encoded: Encoded, trained: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """The ids where trained, and never at a row's first token: a trainer's shift would predict it
    from whatever stands before it in a pack."""
    labels = np.where(trained, encoded.ids, np.int32(IGNORED))
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
        column, flat = weights.of_tokens(
            segment_weights, encoded.segments, encoded.lengths, encoded.offsets, labels
        )
        batch = columns.put(batch, "loss_weights", column)
        digest = (
            digests((encoded.offsets, folded))
            if flat is None
            else weighted_digests(encoded.offsets, folded, labels != IGNORED, flat)
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
        # Two independent readings of where the markers are: from the segments, and from the ids.
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
            values = values.filter(pa.array(encoded.kept[markers]))
            offsets = offsets_of(count_per_row(bounds, encoded.kept & markers))
            batch = columns.put(batch, "step_labels", make_list(offsets, values))
        floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
        return batch, floats, offsets
