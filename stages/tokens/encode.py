"""Rendered rows to ids and labels: one stage for each kind of example.

A row is an outline and its own texts, or segments. Rows of outlines are encoded as columns (see
``outline_tokens``), the others segment by segment (see ``segment_encoder``), in the same batch and
to the same ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns, profile
from stages.chat_template import loss_weights
from stages.chat_template.segments import CONTROL, MARKER, TRAINED
from stages.columns import (
    IGNORED,
    Bools,
    Ids,
    Ints,
    count_per_row,
    list_parts,
    make_list,
    offsets_of,
)
from stages.contract import Batch
from stages.errors import counted
from stages.tokens import folded_labels, outline_tokens
from stages.tokens.outline_tokens import Sequences
from stages.tokens.segment_encoder import (
    Encoded,
    SegmentEncoder,
    digests,
    too_long,
    weighted_digests,
)

_SUMS = ("controls", "truncated", "longer", "merged_cuts")  # over both sides of a pair
COUNTS = ("length", "trained", *_SUMS, "digest")
COLUMNS, SEGMENTS = "columns", "segments"  # the ways in which rows are encoded


def _of_segments(encoder: SegmentEncoder, batch: Batch, prefix: str) -> Sequences:
    encoded = encoder(outline_tokens.segments_of(batch, prefix))
    kinds, offsets = encoded.kinds, encoded.offsets
    return Sequences(
        folded=np.where((kinds & TRAINED) > 0, ~encoded.ids, encoded.ids),
        offsets=offsets,
        controls=count_per_row(offsets, (kinds & CONTROL) > 0),
        markers=count_per_row(offsets, (kinds & MARKER) > 0),
        truncated=encoded.truncated,
        longer=encoded.longer,
        merged_cuts=encoded.merged_cuts,
        pieces=encoded,
    )


def _outlined(encoder: SegmentEncoder, batch: Batch, prefixes: Sequence[str]) -> list[Sequences]:
    """The sequences of each prefix, in one call for all, so that a prompt is encoded once."""
    assert encoder.outlines is not None
    outlines = pa.chunked_array([batch.column(f"{prefix}outline") for prefix in prefixes])
    texts = pa.concat_arrays([batch.column(f"{prefix}texts") for prefix in prefixes])
    together = outlines.unify_dictionaries().combine_chunks()
    encoded = encoder.outlines(together, texts, len(prefixes) > 1)
    count = batch.num_rows
    return [encoded.part(slice(n * count, (n + 1) * count)) for n in range(len(prefixes))]


def _both_ways(
    batch: Batch,
    encoder: SegmentEncoder,
    prefixes: Sequence[str],
    finish: Callable[[Batch, list[Sequences]], Batch],
) -> Batch:
    """Encode each row of a batch in the way that it allows.

    Args:
        prefixes: of the columns of its outlines and segments.
        finish: puts the columns of rows whose sequences are known, those of each prefix.
    """

    def careful(rows: Batch) -> Batch:
        sequences = [_of_segments(encoder, rows, prefix) for prefix in prefixes]
        return columns.put_all(finish(rows, sequences), encoded=pa.repeat(SEGMENTS, rows.num_rows))

    plain = np.full(batch.num_rows, encoder.outlines is not None)
    for prefix in prefixes:
        if encoder.outlines is None or f"{prefix}outline" not in batch.schema.names:
            return careful(batch)
        plain &= encoder.outlines.takes(batch.column(f"{prefix}outline"))
    rows = batch if plain.all() else batch.filter(pa.array(plain))
    made = finish(rows, _outlined(encoder, rows, prefixes))
    made = columns.put_all(made, encoded=pa.repeat(COLUMNS, rows.num_rows))
    if encoder.trims:  # which segments stay is decided segment by segment
        over = made.column("length").to_numpy() > encoder.max_length
        if over.any():
            plain[np.flatnonzero(plain)[over]] = False
            made = made.filter(pa.array(~over))
    if plain.all():
        return made
    others = careful(batch.filter(pa.array(~plain)))
    order = np.argsort(np.concatenate([np.flatnonzero(plain), np.flatnonzero(~plain)]))
    together = pa.Table.from_batches([made, others.select(made.schema.names)])
    return together.take(pa.array(order)).combine_chunks().to_batches()[0]


def _put_counts(batch: Batch, sides: Sequence[Sequences], trained: Ints) -> Batch:
    length = np.max([side.lengths for side in sides], axis=0)
    sums = {name: np.sum([getattr(side, name) for side in sides], axis=0) for name in _SUMS}
    return columns.put_all(batch, length=length, trained=trained, **sums)


def _first_untrained(folded: Ids, offsets: Ints) -> Ids:
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
    writes: tuple[str, ...] = ("folded", "loss_weights", *COUNTS, "encoded")

    def __call__(self, batch: Batch) -> Batch:
        return _both_ways(batch, self.encoder, ("",), self._finish)

    def _finish(self, batch: Batch, sequences: list[Sequences]) -> Batch:
        (made,) = sequences
        offsets, pieces = made.offsets, made.pieces
        folded = _first_untrained(made.folded, offsets)
        column = loss_weights.lists({}, batch.num_rows)
        weights: npt.NDArray[np.float32] | None = None
        if pieces is not None:  # rows with weights are never encoded as columns
            column, weights = loss_weights.of_tokens(
                batch.column("segment_weights"),
                segments=pieces.segments,
                lengths=pieces.lengths,
                offsets=offsets,
                labels=folded_labels.unfolded(folded)[1],
            )
        batch = columns.put_all(
            batch, folded=make_list(offsets, pa.array(folded)), loss_weights=column
        )
        batch = _put_counts(batch, sequences, count_per_row(offsets, folded < 0))
        digest = digests((offsets, folded))
        if weights is not None:
            digest = weighted_digests(offsets, folded, folded < 0, weights)
        batch = columns.put_all(batch, digest=digest)
        return too_long(batch, made.lengths, self.encoder.max_length)


_SIDES = ("chosen", "rejected")
_STEPS = ("input_ids", "labels", "step_positions", "step_labels")


@dataclass
class EncodePair:
    """RM: both sides' segments to ids, and how many tokens they share before training starts."""

    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("chosen_segments", "rejected_segments")
    writes: tuple[str, ...] = ("chosen_ids", "rejected_ids", "prompt_length", *COUNTS, "encoded")

    def __call__(self, batch: Batch) -> Batch:
        return _both_ways(batch, self.encoder, [f"{side}_" for side in _SIDES], self._finish)

    def _finish(self, batch: Batch, sides: list[Sequences]) -> Batch:
        ids = [(side.offsets, side.ids) for side in sides]
        for name, (offsets, flat) in zip(_SIDES, ids, strict=True):
            batch = columns.put(batch, f"{name}_ids", make_list(offsets, pa.array(flat)))
        prompts = [_first_trained(side.offsets, side.folded < 0) for side in sides]
        trained = [count_per_row(side.offsets, side.folded < 0) for side in sides]
        batch = columns.put_all(batch, prompt_length=np.minimum(*prompts))
        batch = columns.put_all(
            _put_counts(batch, sides, np.sum(trained, axis=0)), digest=digests(*ids)
        )
        for name, side in zip(_SIDES, sides, strict=True):
            batch = too_long(batch, side.lengths, self.encoder.max_length, f" on the {name} side")
        return batch


def _first_trained(offsets: Ints, trained: Bools) -> Ints:
    """Index within each row of its first trained token; the row's length when it has none."""
    # The first trained token at or after the row's start, which may belong to a later row.
    places = np.append(np.flatnonzero(trained), len(trained))
    first = places[np.searchsorted(places, offsets[:-1])]
    return np.minimum(first - offsets[:-1], np.diff(offsets))


@dataclass
class EncodeSteps:
    """PRM: segments to ids; labels stand at the markers and are read there, unshifted."""

    model: profile.TargetModel
    encoder: SegmentEncoder
    name: str = "encode"
    reads: tuple[str, ...] = ("segments", "step_labels")
    writes: tuple[str, ...] = (*_STEPS, *COUNTS, "encoded")

    def __call__(self, batch: Batch) -> Batch:
        return _both_ways(batch, self.encoder, ("",), self._finish)

    def _finish(self, batch: Batch, sequences: list[Sequences]) -> Batch:
        (made,) = sequences
        batch, ratings, label_starts = self._kept_labels(batch, made.pieces)
        model, starts, ids = self.model, made.offsets, made.ids
        # The markers are counted twice, from the segments and from the ids, so that a text that
        # became the marker's id, or a marker that is not one id, refuses the row.
        positions = np.flatnonzero(ids == model.step_id)
        rows = np.searchsorted(starts, positions, side="right") - 1
        counts = np.bincount(rows, minlength=batch.num_rows)
        wanted = np.diff(label_starts)
        wrong = (counts != wanted) | (made.markers != wanted)
        labels = np.full(len(ids), IGNORED, np.int32)
        tokens = np.where(ratings >= 0.5, model.good_id, model.bad_id).astype(np.int32)
        known = np.where(np.isnan(ratings), np.int32(IGNORED), tokens)
        # One rating per marker, in order; rows with the wrong number are left out on both sides.
        labels[positions[~wrong[rows]]] = known[~np.repeat(wrong, wanted)]
        details = [
            f"{counted(c, 'marker')} among the ids, {counted(e, 'step')}, {counted(w, 'label')}"
            for c, e, w in zip(counts[wrong], made.markers[wrong], wanted[wrong], strict=True)
        ]
        batch = columns.refuse(batch, wrong, "marker_count", details)
        relative = pa.array((positions - starts[rows]).astype(np.int32))
        batch = columns.put_all(
            batch,
            input_ids=make_list(starts, pa.array(ids)),
            labels=make_list(starts, pa.array(labels)),
            step_positions=make_list(offsets_of(counts), relative),
        )
        rated = count_per_row(starts, labels != IGNORED)
        batch = _put_counts(batch, sequences, rated)
        bare = (rated == 0) & (made.truncated > 0)  # what fits has no rating to train
        limit = f"--max-length is {self.encoder.max_length}, and no step that fits is rated"
        whole = (made.lengths + made.truncated)[bare]
        batch = columns.refuse(batch, bare, "too_long", [f"{n} tokens; {limit}" for n in whole])
        # NaN has many bit patterns; -1, which is no rating, has one.
        floats = np.nan_to_num(ratings, nan=-1.0).astype(np.float32).view(np.int32)
        digest = digests((starts, ids), (starts, labels), (label_starts, floats))
        batch = columns.put_all(batch, digest=digest)
        return too_long(batch, made.lengths, self.encoder.max_length)

    def _kept_labels(
        self, batch: Batch, pieces: Encoded | None
    ) -> tuple[Batch, npt.NDArray[np.float32], Ints]:
        """The labels of the steps that stayed, as a column and as floats with NaN for null."""
        offsets, values = list_parts(batch.column("step_labels"))
        if pieces is not None and not pieces.kept.all():
            bounds, segments = list_parts(outline_tokens.segments_of(batch, ""))
            markers = (segments.field(1).to_numpy() & MARKER) > 0
            # Each marker has one label: the labels of dropped markers are dropped.
            values = values.filter(pa.array(pieces.kept[markers]))
            offsets = offsets_of(count_per_row(bounds, pieces.kept & markers))
            batch = columns.put(batch, "step_labels", make_list(offsets, values))
        return batch, values.to_numpy(zero_copy_only=False).astype(np.float32), offsets
