"""Rated steps: their markers, positions and ratings, and the labels made from these."""

import numpy as np
import numpy.typing as npt

from expectations import contract, stored_rows
from expectations.invariants import laws
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers, offsets_of

MANY_RATINGS = 1000  # with fewer, the share of good ones says little
MILLION = 1_000_000


def _ratings(rows: stored_rows.StoredRows) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Where each example's ratings begin, and the ratings, flat: NaN where a step has none."""
    assert rows.examples.steps is not None
    offsets, values = list_parts(rows.examples.steps[1])
    return offsets, values.to_numpy(zero_copy_only=False).astype(np.float64)


def _steps(rows: stored_rows.StoredRows) -> contract.Columns:
    examples, model = rows.examples, rows.context.model
    assert examples.steps is not None
    sequences, labels = examples.sequences, examples.labels
    step, good, bad = np.array([model.step_id, model.good_id, model.bad_id], np.int32)
    marker = sequences.ids == step
    trained = labels != IGNORED
    at, flat = numbers(examples.steps[0])
    rated_at, values = _ratings(rows)
    counts = np.diff(at)
    # Positions count from the start of their example; ``absolute`` is the index in the flat ids. A
    # wrong one may be outside of them, so indexing is guarded.
    absolute = flat + np.repeat(sequences.offsets[:-1], counts)
    inside = (absolute >= 0) & (absolute < len(sequences.ids))
    on_marker = (
        inside & marker[np.clip(absolute, 0, max(len(marker) - 1, 0))] if len(marker) else inside
    )
    owner = np.repeat(np.arange(len(counts)), counts)
    wrong = np.zeros(len(counts), np.int64)
    if len(flat) == len(values) and inside.all():
        wanted = np.where(np.isnan(values), IGNORED, np.where(values >= 0.5, good, bad))
        wrong = np.bincount(owner[labels[absolute] != wanted], minlength=len(counts))
    return {
        "n_markers": sequences.per_row(marker),
        "n_positions": counts,
        "n_step_labels": np.diff(rated_at),
        "n_labelled": count_per_row(rated_at, ~np.isnan(values)),
        "n_good": sequences.per_row(labels == good),
        "n_labels": sequences.per_row(trained),
        "n_labels_off_markers": sequences.per_row(trained & ~marker),
        "n_labels_no_reward": sequences.per_row(trained & (labels != good) & (labels != bad)),
        "n_positions_off_markers": np.bincount(owner[~on_marker], minlength=len(counts)),
        "n_labels_not_ratings": wrong,
    }


def _after_error(rows: stored_rows.StoredRows) -> contract.Columns:
    """How many steps after an example's first bad one have a rating, where the format of its input
    rates up to the first error; 0 elsewhere."""
    assert rows.sources is not None
    offsets, ratings = _ratings(rows)
    # Bad steps before each step: a cumulative count, less the count before the example.
    wrong = offsets_of((ratings < 0.5).astype(np.int64))
    before = wrong[:-1] - np.repeat(wrong[offsets[:-1]], np.diff(offsets))
    after = count_per_row(offsets, (before > 0) & ~np.isnan(ratings))
    to_first_error = np.array(
        [*rows.sources.first_error, False]
    )  # -1, an unknown input, takes the last
    return {"n_labelled_after_error": np.where(to_first_error[rows.place["source"]], after, 0)}


def _positives(dataset: stored_rows.Dataset) -> contract.Columns:
    labels, good = (dataset.total(contract.EXAMPLE, name) for name in ("n_labels", "n_good"))
    share = good * MILLION // labels if labels >= MANY_RATINGS else MILLION // 2
    return {"ratings": [labels], "ratings_good": [good], "positives_ppm": [share]}


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_steps, needs=(contract.MARKS,)),
        contract.Metrics(measure=_after_error, needs=(contract.MARKS,), evidence=contract.STORED),
        contract.Metrics(measure=_positives, needs=(contract.MARKS,), level=contract.DATASET),
    ),
    invariants=laws("steps"),
)
