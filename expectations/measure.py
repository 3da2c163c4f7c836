"""Metrics of training rows: integers and booleans only, one row per example or per training row.

They are computed from the columns alone, without help from the code that wrote them, so that they
say what a trainer will read. Packs and padding are undone first; what remains is examples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from expectations.contract import Context
from expectations.unlay import Examples, Ids, Sequences, column, sides, unlay
from stages.columns import (
    IGNORED,
    Ints,
    count_per_row,
    list_parts,
    numbers,
    offsets_of,
    sum_per_row,
)
from stages.profile import TargetModel


def _highest(offsets: Ints, values: Ids) -> Ints:
    if not len(values):
        return np.full(len(offsets) - 1, -1, np.int64)
    highest = np.maximum.reduceat(np.append(values, np.int32(-1)), offsets[:-1])
    return np.where(np.diff(offsets) > 0, highest, -1).astype(np.int64)


def _sequence_metrics(sequences: Sequences, context: Context) -> dict[str, npt.ArrayLike]:
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
        "n_bos_inside": _bos_inside(sequences, model),
        "n_pad": sequences.per_row(sequences.ids == model.pad_id),
        "n_controls": np.diff(np.searchsorted(is_control, sequences.offsets)),
        "first_id": sequences.at(sequences.offsets[:-1]).astype(np.int64),
        "last_id": sequences.at(np.maximum(sequences.offsets[1:] - 1, 0)).astype(np.int64),
    }


def _bos_inside(sequences: Sequences, model: TargetModel) -> Ints:
    """How many beginning-of-text tokens stand behind the first place; none where a family has
    none, or ends its turns with the same token."""
    token = model.profile.bos_token
    index = model.controls.get(token, -1) if token else -1
    if index < 0 or index in (model.end_of_turn_id, model.pad_id):
        return np.zeros(len(sequences.offsets) - 1, np.int64)
    found = sequences.ids == index
    opening = sequences.at(sequences.offsets[:-1]) == index
    inside: Ints = sequences.per_row(found) - opening
    return inside


def _label_metrics(sequences: Sequences, labels: Ids, context: Context) -> dict[str, npt.ArrayLike]:
    trained = labels != IGNORED
    ends = trained.copy()
    ends[:-1] &= ~trained[1:]
    lasts = sequences.offsets[1:][np.diff(sequences.offsets) > 0] - 1
    ends[lasts] = trained[lasts]
    firsts = sequences.offsets[:-1]
    first_label = Sequences(sequences.offsets, labels).at(firsts)
    return {
        "n_trained": sequences.per_row(trained),
        "n_labels_not_ids": sequences.per_row(trained & (labels != sequences.ids)),
        "n_open_turns": sequences.per_row(ends & (sequences.ids != context.model.end_of_turn_id)),
        "first_is_trained": (first_label != IGNORED) & (first_label != -1),
    }


def _weight_metrics(found: Examples, row_of: Ints) -> dict[str, npt.ArrayLike]:
    """Loss weights beside the labels; rows without any are as they should be."""
    count = len(found.sequences.offsets) - 1
    if found.weights is None:
        return {"weights_fit": np.ones(count, bool), "n_weights_off": np.zeros(count, np.int64)}
    values, fits = found.weights
    good = np.where(found.labels != IGNORED, np.isfinite(values) & (values > 0), values == 0)
    return {
        "weights_fit": fits[np.clip(row_of, 0, len(fits) - 1)],
        "n_weights_off": found.sequences.per_row(~good),
    }


def _step_metrics(
    sequences: Sequences,
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
        "n_labelled_after_error": _after_error(rated_at, values),
        "n_good": sequences.per_row(labels == good),
        "n_labels": sequences.per_row(trained),
        "n_labels_off_markers": sequences.per_row(trained & ~marker),
        "n_labels_no_reward": sequences.per_row(trained & (labels != good) & (labels != bad)),
        "n_positions_off_markers": out_of_place,
        "n_labels_not_ratings": wrong,
    }


def _after_error(offsets: Ints, ratings: npt.NDArray[np.float64]) -> Ints:
    """How many steps behind a row's first bad one have a rating."""
    wrong = offsets_of((ratings < 0.5).astype(np.int64))
    before = wrong[:-1] - np.repeat(wrong[offsets[:-1]], np.diff(offsets))
    return count_per_row(offsets, (before > 0) & ~np.isnan(ratings))


def _pair_metrics(
    table: pa.Table, found: dict[str, Sequences], context: Context
) -> dict[str, npt.ArrayLike]:
    chosen, rejected = found["chosen"], found["rejected"]
    shared = table.column("prompt_length").to_numpy()
    metrics: dict[str, npt.ArrayLike] = {}
    for name, side in found.items():
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


def examples(table: pa.Table, context: Context) -> pl.DataFrame:
    """One row of metrics per example, in stored order.

    Args:
        table: a batch after ``encode``, with its loss weights as they are stored, or a shard of
            the context's layout.
    """
    if context.task == "rm":
        return pairs(table, sides(table, context), context)
    return singles(unlay(table, context), context)


def pairs(table: pa.Table, found: dict[str, Sequences], context: Context) -> pl.DataFrame:
    """Metrics of pairs whose layout was undone."""
    return pl.DataFrame(_pair_metrics(table, found, context))


def singles(found: Examples, context: Context) -> pl.DataFrame:
    """Metrics of SFT or PRM examples whose layout was undone."""
    metrics = _sequence_metrics(found.sequences, context)
    metrics.update(_label_metrics(found.sequences, found.labels, context))
    row_of = np.searchsorted(found.rows, found.sequences.offsets[:-1], side="right") - 1
    metrics["labels_fit"] = found.fits[np.clip(row_of, 0, len(found.fits) - 1)]
    if context.task == "sft":
        metrics.update(_weight_metrics(found, row_of))
    if found.steps is not None:
        model = context.model
        tokens = np.array([model.step_id, model.good_id, model.bad_id], np.int32)
        metrics.update(_step_metrics(found.sequences, found.labels, *found.steps, tokens))
    return pl.DataFrame(metrics)


def rows(table: pa.Table, context: Context) -> pl.DataFrame:
    """One row of metrics per training row: a pack, or a padded row."""
    if context.layout == "packed":
        stored = np.diff(numbers(column(table, "input_ids"))[0])
        at, lengths = numbers(column(table, "seq_lengths"))
        begins = offsets_of(lengths)[:-1]
        begins = begins - np.repeat(offsets_of(lengths)[at[:-1]], np.diff(at))
        restarts = (lengths > 0) & (begins < np.repeat(stored, np.diff(at)))
        names = np.diff(column(table, "row_ids").offsets.to_numpy())
        return pl.DataFrame(
            {
                "n_tokens": stored,
                "n_in_examples": sum_per_row(at, lengths.astype(np.int64)),
                "n_examples": np.diff(at),
                "n_names": names,
                "n_restarts": count_per_row(at, restarts),
            }
        )
    sides = ("chosen_", "rejected_") if context.task == "rm" else ("",)
    metrics = [_padding_metrics(table, context, side) for side in sides]
    merged = {k: np.sum([np.asarray(m[k]) for m in metrics], axis=0) for k in metrics[0]}
    widths = [np.asarray(m["width"]) for m in metrics]
    return pl.DataFrame({**merged, "width": widths[0], "same_width": widths[0] == widths[-1]})


def _padding_metrics(table: pa.Table, context: Context, side: str) -> dict[str, npt.ArrayLike]:
    ids = column(table, f"{side}ids" if side else "input_ids")
    offsets, flat = numbers(ids)
    mask_offsets, mask = numbers(column(table, f"{side}attention_mask"))
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


def _types_out_of_place(
    table: pa.Table, context: Context, side: str, real: npt.NDArray[np.bool_]
) -> Ints:
    """Token types that are not 1 from behind the first separator on; the family may have none."""
    offsets, flat = numbers(column(table, f"{side}ids" if side else "input_ids"))
    width = np.diff(offsets)
    pair = context.model.profile.pair
    name = f"{side}token_type_ids"
    if pair is None or not pair.token_types or name not in table.schema.names:
        wanted = pair is not None and pair.token_types
        return 0 * width if wanted == (name in table.schema.names) else width
    at, types = numbers(column(table, name))
    if not np.array_equal(at, offsets):
        return np.maximum(np.diff(at), 1)
    seen = offsets_of(flat == context.model.end_of_turn_id)  # separators before each token
    answer = seen[:-1] > np.repeat(seen[offsets[:-1]], width)
    wrong: npt.NDArray[np.bool_] = types != (answer & real)
    return count_per_row(offsets, wrong)
