"""Metrics of training rows: integers and booleans only, one row per example or per training row.

They are computed from the columns alone, without help from the code that wrote them, so that they
say what a trainer will read. Packs and padding are undone first; what remains is examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from expectations.contract import Context
from stages.columns import (
    IGNORED,
    Ints,
    count_per_row,
    list_parts,
    numbers,
    offsets_of,
    sum_per_row,
    whole,
)

Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]


@dataclass(slots=True)
class _Sequences:
    """Unpadded sequences, flat."""

    offsets: Ints
    ids: Ids

    def per_row(self, tokens: Bools) -> Ints:
        return count_per_row(self.offsets, tokens)

    def at(self, which: Ints) -> Ids:
        """The id at a flat index; -1 where the row is empty."""
        filled = np.append(self.ids, np.int32(-1))
        return np.where(np.diff(self.offsets) > 0, filled[np.minimum(which, len(self.ids))], -1)


def _highest(offsets: Ints, values: Ids) -> Ints:
    if not len(values):
        return np.full(len(offsets) - 1, -1, np.int64)
    highest = np.maximum.reduceat(np.append(values, np.int32(-1)), offsets[:-1])
    return np.where(np.diff(offsets) > 0, highest, -1).astype(np.int64)


def _sequence_metrics(sequences: _Sequences, context: Context) -> dict[str, npt.ArrayLike]:
    model = context.model
    # The unknown token is registered like the others, but any text may become it.
    known = (index for index in model.controls.values() if index != model.unk_id)
    controls = np.fromiter(known, np.int32)
    high = np.flatnonzero(sequences.ids >= controls.min())  # control tokens end a vocabulary
    is_control = high[np.isin(sequences.ids[high], controls)]
    return {
        "n_tokens": np.diff(sequences.offsets),
        "max_id": _highest(sequences.offsets, sequences.ids),
        "n_negative": sequences.per_row(sequences.ids < 0),
        "n_pad": sequences.per_row(sequences.ids == model.pad_id),
        "n_controls": np.diff(np.searchsorted(is_control, sequences.offsets)),
        "first_id": sequences.at(sequences.offsets[:-1]).astype(np.int64),
        "last_id": sequences.at(np.maximum(sequences.offsets[1:] - 1, 0)).astype(np.int64),
    }


def _label_metrics(
    sequences: _Sequences, labels: Ids, context: Context
) -> dict[str, npt.ArrayLike]:
    trained = labels != IGNORED
    ends = trained.copy()
    ends[:-1] &= ~trained[1:]
    lasts = sequences.offsets[1:][np.diff(sequences.offsets) > 0] - 1
    ends[lasts] = trained[lasts]
    firsts = sequences.offsets[:-1]
    first_label = _Sequences(sequences.offsets, labels).at(firsts)
    return {
        "n_trained": sequences.per_row(trained),
        "n_labels_not_ids": sequences.per_row(trained & (labels != sequences.ids)),
        "n_open_turns": sequences.per_row(ends & (sequences.ids != context.model.end_of_turn_id)),
        "first_is_trained": (first_label != IGNORED) & (first_label != -1),
    }


def _step_metrics(
    sequences: _Sequences,
    labels: Ids,
    positions: pa.ListArray,
    ratings: pa.ListArray,
    model_ids: Ids,
) -> dict[str, npt.ArrayLike]:
    step, good, bad = model_ids
    marker = sequences.ids == step
    trained = labels != IGNORED
    at, flat = numbers(positions)
    rated_at, rated = list_parts(ratings)
    values = rated.to_numpy(zero_copy_only=False).astype(np.float64)
    counts = np.diff(at)
    absolute = flat + np.repeat(sequences.offsets[:-1], counts)
    inside = (absolute >= 0) & (absolute < len(sequences.ids))
    on_marker = (
        inside & marker[np.clip(absolute, 0, max(len(marker) - 1, 0))] if len(marker) else inside
    )
    rows = np.repeat(np.arange(len(counts)), counts)
    out_of_place = np.bincount(rows[~on_marker], minlength=len(counts))
    wrong = np.zeros(len(counts), np.int64)
    if len(flat) == len(values) and inside.all():
        wanted = np.where(np.isnan(values), IGNORED, np.where(values >= 0.5, good, bad))
        wrong = np.bincount(rows[labels[absolute] != wanted], minlength=len(counts))
    return {
        "n_markers": sequences.per_row(marker),
        "n_positions": counts,
        "n_step_labels": np.diff(rated_at),
        "n_labelled": count_per_row(rated_at, ~np.isnan(values)),
        "n_labels": sequences.per_row(trained),
        "n_labels_off_markers": sequences.per_row(trained & ~marker),
        "n_labels_no_reward": sequences.per_row(trained & (labels != good) & (labels != bad)),
        "n_positions_off_markers": out_of_place,
        "n_labels_not_ratings": wrong,
    }


def _pair_metrics(table: pa.Table, context: Context, padded: bool) -> dict[str, npt.ArrayLike]:
    sides = {}
    for name in ("chosen", "rejected"):
        mask = _column(table, f"{name}_attention_mask") if padded else None
        sides[name] = _unpadded(_column(table, f"{name}_ids"), mask)
    chosen, rejected = sides["chosen"], sides["rejected"]
    shared = table.column("prompt_length").to_numpy()
    metrics: dict[str, npt.ArrayLike] = {}
    for name, side in sides.items():
        for key, values in _sequence_metrics(side, context).items():
            metrics[f"{name}_{key}"] = values
    lengths = [np.diff(side.offsets) for side in (chosen, rejected)]
    equal = np.zeros(len(shared), bool)
    prefix = np.zeros(len(shared), bool)
    for row in range(len(shared)):
        a = chosen.ids[chosen.offsets[row] : chosen.offsets[row + 1]]
        b = rejected.ids[rejected.offsets[row] : rejected.offsets[row + 1]]
        equal[row] = np.array_equal(a, b)
        prefix[row] = np.array_equal(a[: shared[row]], b[: shared[row]])
    metrics["sides_equal"] = equal
    metrics["prompt_shared"] = prefix & (shared <= np.minimum(*lengths)) & (shared > 0)
    metrics["margin_finite"] = np.ones(len(shared), bool)
    if "margin" in table.schema.names:
        missing = table.column("margin").is_null().to_numpy()
        margin = table.column("margin").fill_null(0).to_numpy()
        metrics["margin_finite"] = missing | np.isfinite(margin)
    return metrics


def _column(table: pa.Table, name: str) -> pa.ListArray:
    return whole(table.column(name))


def _unpadded(ids: pa.ListArray, mask: pa.ListArray | None) -> _Sequences:
    offsets, flat = numbers(ids)
    if mask is None:
        return _Sequences(offsets, flat)
    real = numbers(mask)[1] == 1
    if len(real) != len(flat):  # judged by padding_in_place
        return _Sequences(offsets, flat)
    return _Sequences(offsets_of(count_per_row(offsets, real)), flat[real])


def _fitted(labels: _Sequences, rows: Ints) -> tuple[Ids, Bools]:
    """Labels on the tokens they belong to, and which rows have as many of them as tokens."""
    fits = np.diff(labels.offsets) == np.diff(rows)
    if fits.all():
        return labels.ids, fits
    found = np.full(int(rows[-1]), IGNORED, np.int32)
    for row in np.flatnonzero(fits):
        found[rows[row] : rows[row + 1]] = labels.ids[labels.offsets[row] : labels.offsets[row + 1]]
    return found, fits


def examples(table: pa.Table, context: Context) -> pl.DataFrame:
    """One row of metrics per example, in stored order.

    Args:
        table: a batch after ``encode``, or a shard of the context's layout.
    """
    padded = context.layout == "padded"
    if context.task == "rm":
        return pl.DataFrame(_pair_metrics(table, context, padded))
    mask = _column(table, "attention_mask") if padded else None
    sequences = _unpadded(_column(table, "input_ids"), mask)
    row_offsets = sequences.offsets
    labels, fits = _fitted(_unpadded(_column(table, "labels"), mask), row_offsets)
    if context.layout == "packed":
        lengths = np.maximum(numbers(_column(table, "seq_lengths"))[1], 0)
        sequences = _Sequences(offsets_of(lengths), sequences.ids)
        if sequences.offsets[-1] != len(sequences.ids):  # judged by seq_lengths_fill_the_pack
            sequences = _Sequences(row_offsets, sequences.ids)
    metrics = _sequence_metrics(sequences, context)
    metrics.update(_label_metrics(sequences, labels, context))
    row_of = np.searchsorted(row_offsets, sequences.offsets[:-1], side="right") - 1
    metrics["labels_fit"] = fits[np.clip(row_of, 0, len(fits) - 1)]
    if context.task == "prm":
        model = context.model
        tokens = np.array([model.step_id, model.good_id, model.bad_id], np.int32)
        steps = _step_columns(table, context, row_offsets, sequences.offsets)
        metrics.update(_step_metrics(sequences, labels, *steps, tokens))
    return pl.DataFrame(metrics)


def _step_columns(
    table: pa.Table, context: Context, rows: Ints, sequences: Ints
) -> tuple[pa.ListArray, pa.ListArray]:
    """Positions and labels per example, positions counted from the example's first token."""
    positions, ratings = _column(table, "step_positions"), _column(table, "step_labels")
    if context.layout == "ragged":
        return positions, ratings
    at, flat = numbers(positions)
    row_of = np.repeat(np.arange(len(at) - 1), np.diff(at))
    if context.layout == "padded":
        stored = np.diff(numbers(_column(table, "input_ids"))[0])
        left = (
            (stored - np.diff(rows)) if context.model.profile.padding_side == "left" else 0 * stored
        )
        return pa.ListArray.from_arrays(
            pa.array(at.astype(np.int32)), pa.array((flat - left[row_of]).astype(np.int32))
        ), ratings
    absolute = flat + rows[row_of]
    owner = np.clip(np.searchsorted(sequences, absolute, side="right") - 1, 0, len(sequences) - 2)
    counts = offsets_of(np.bincount(owner, minlength=len(sequences) - 1)).astype(np.int32)
    relative = (absolute - sequences[owner]).astype(np.int32)
    rated_at, values = list_parts(ratings)
    if not np.array_equal(rated_at, at):  # a pack with more or fewer labels than positions
        first = np.searchsorted(sequences, rows[:-1], side="left")
        spread = np.zeros(len(sequences) - 1, np.int64)
        spread[np.clip(first, 0, len(spread) - 1)] = np.diff(rated_at)
        rated = offsets_of(spread).astype(np.int32)
    else:
        rated = counts
    return (
        pa.ListArray.from_arrays(pa.array(counts), pa.array(relative)),
        pa.ListArray.from_arrays(pa.array(rated), values),
    )


def rows(table: pa.Table, context: Context) -> pl.DataFrame:
    """One row of metrics per training row: a pack, or a padded row."""
    if context.layout == "packed":
        stored = np.diff(numbers(_column(table, "input_ids"))[0])
        at, lengths = numbers(_column(table, "seq_lengths"))
        names = np.diff(_column(table, "row_ids").offsets.to_numpy())
        return pl.DataFrame(
            {
                "n_tokens": stored,
                "n_in_examples": sum_per_row(at, lengths.astype(np.int64)),
                "n_examples": np.diff(at),
                "n_names": names,
                "n_empty_examples": count_per_row(at, lengths <= 0),
            }
        )
    sides = ("chosen_", "rejected_") if context.task == "rm" else ("",)
    metrics = [_padding_metrics(table, context, side) for side in sides]
    merged = {k: np.sum([np.asarray(m[k]) for m in metrics], axis=0) for k in metrics[0]}
    widths = [np.asarray(m["width"]) for m in metrics]
    return pl.DataFrame({**merged, "width": widths[0], "same_width": widths[0] == widths[-1]})


def _padding_metrics(table: pa.Table, context: Context, side: str) -> dict[str, npt.ArrayLike]:
    ids = _column(table, f"{side}ids" if side else "input_ids")
    offsets, flat = numbers(ids)
    mask_offsets, mask = numbers(_column(table, f"{side}attention_mask"))
    width = np.diff(offsets)
    if not np.array_equal(mask_offsets, offsets):
        wrong = np.diff(mask_offsets) != width
        mask = np.where(np.repeat(wrong, width), np.int8(-1), np.int8(1))
    real = mask == 1
    real_count = count_per_row(offsets, real)
    index = np.arange(len(flat)) - np.repeat(offsets[:-1], width)
    pads = np.repeat(width - real_count, width)
    left = context.model.profile.padding_side == "left"
    expected = index >= pads if left else index < np.repeat(real_count, width)
    return {
        "width": width,
        "n_mask_out_of_place": count_per_row(offsets, real != expected),
        "n_padding_not_pad": count_per_row(offsets, ~real & (flat != context.model.pad_id)),
        "n_mask_not_binary": count_per_row(offsets, (mask != 0) & (mask != 1)),
        "n_types_out_of_place": _types_out_of_place(table, context, side, real),
    }


def _types_out_of_place(table: pa.Table, context: Context, side: str, real: Bools) -> Ints:
    """Token types that are not 1 from behind the first separator on; the family may have none."""
    offsets, flat = numbers(_column(table, f"{side}ids" if side else "input_ids"))
    width = np.diff(offsets)
    pair = context.model.profile.pair
    name = f"{side}token_type_ids"
    if pair is None or not pair.token_types or name not in table.schema.names:
        wanted = pair is not None and pair.token_types
        return 0 * width if wanted == (name in table.schema.names) else width
    at, types = numbers(_column(table, name))
    if not np.array_equal(at, offsets):
        return np.maximum(np.diff(at), 1)
    seen = offsets_of(flat == context.model.end_of_turn_id)  # separators before each token
    answer = seen[:-1] > np.repeat(seen[offsets[:-1]], width)
    wrong: Bools = types != (answer & real)
    return count_per_row(offsets, wrong)
