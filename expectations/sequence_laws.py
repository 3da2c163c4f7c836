"""Sequences of token ids, their labels and rated steps: lengths, vocabulary, what is trained."""

import numpy as np
import numpy.typing as npt

from expectations import contract, stored_rows, undo_layout
from expectations.invariants import laws
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers, offsets_of
from stages.profile import TargetModel
from stages.tokens import inference


def _highest(sequences: undo_layout.Sequences) -> Ints:
    """The highest id of each sequence; -1 where it is empty."""
    offsets, ids = sequences.offsets, sequences.ids
    if not len(ids):
        return np.full(len(sequences), -1, np.int64)
    # reduceat takes no offset at the end, where only empty sequences begin.
    highest = np.maximum.reduceat(ids, np.minimum(offsets[:-1], len(ids) - 1))
    return np.where(np.diff(offsets) > 0, highest, -1).astype(np.int64)


def _bos_inside(sequences: undo_layout.Sequences, model: TargetModel) -> Ints:
    """How many bos tokens are after the first position; 0 where a family has no bos token, or opens
    or ends its turns with the same token."""
    token = model.profile.bos_token
    index = model.controls.get(token, -1) if token else -1
    opens = model.profile.bos_policy == "turns"
    if opens or index < 0 or index in (*model.end_ids, model.pad_id):
        return np.zeros(len(sequences), np.int64)
    is_bos = sequences.ids == index
    opening = sequences.at(sequences.offsets[:-1]) == index
    inside: Ints = sequences.per_row(is_bos) - opening
    return inside


def _controls(sequences: undo_layout.Sequences, model: TargetModel) -> Ints:
    """How many control tokens each sequence has."""
    return np.diff(np.searchsorted(_of_control(sequences, model), sequences.offsets))


def _of_control(sequences: undo_layout.Sequences, model: TargetModel) -> Ints:
    """Where the control tokens are."""
    # The unknown token is a special token as well, but ordinary text may give it.
    known = (index for index in model.controls.values() if index != model.unk_id)
    controls = np.fromiter(known, np.int32)
    # Control tokens are mostly at the end of a vocabulary: search them only among high ids.
    high = np.flatnonzero(sequences.ids >= controls.min())
    found: Ints = high[np.isin(sequences.ids[high], controls)]
    return found


def _last_id(sequences: undo_layout.Sequences, model: TargetModel) -> Ints:
    """The last id of each sequence; any that ends a turn counts as the usual one."""
    last = sequences.at(np.maximum(sequences.offsets[1:] - 1, 0)).astype(np.int64)
    return np.where(model.ends_turn(last), model.end_of_turn_id, last)


def _one_side(sequences: undo_layout.Sequences, model: TargetModel) -> contract.Columns:
    return {
        "n_tokens": np.diff(sequences.offsets),
        "max_id": _highest(sequences),
        "n_negative": sequences.per_row(sequences.ids < 0),
        "n_bos_inside": _bos_inside(sequences, model),
        "n_pad": sequences.per_row(sequences.ids == model.pad_id),
        "n_controls": _controls(sequences, model),
        "first_id": sequences.at(sequences.offsets[:-1]).astype(np.int64),
        "last_id": _last_id(sequences, model),
    }


def _each_side(rows: stored_rows.StoredRows) -> contract.Columns:
    """The metrics of every sequence of an example; those of a pair's sides have a prefix."""
    return {
        prefix + name: values
        for prefix, sequences in rows.sides.items()
        for name, values in _one_side(sequences, rows.context.model).items()
    }


def _printed(rows: stored_rows.StoredRows) -> contract.Columns:
    """How many control tokens the template printed, and whether a row has lost a turn or step that
    would have fitted; both are known only while parts are made."""
    longer = rows.table.column("longer").to_numpy()
    columns = {
        "n_controls_printed": rows.table.column("controls").to_numpy(),
        "trimmed_too_much": (longer > 0) & (longer <= rows.context.max_length),
    }
    if rows.paired:
        sides = [_controls(side, rows.context.model) for side in rows.sides.values()]
        columns["n_controls"] = np.sum(sides, axis=0)
    return columns


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_each_side),
        contract.Metrics(measure=_printed, needs=(contract.STREAM,)),
    ),
    invariants=laws("sequences"),
)


# Labels: which tokens are trained, and that each is the token itself.


def _labels(rows: stored_rows.StoredRows) -> contract.Columns:
    examples = rows.examples
    sequences, labels = examples.sequences, examples.labels
    trained = labels != IGNORED
    # A trained run ends where the next token is untrained, or belongs to another example.
    ends = trained.copy()
    ends[:-1] &= ~trained[1:]
    filled = sequences.offsets[1:] > sequences.offsets[:-1]
    lasts = sequences.offsets[1:][filled] - 1
    ends[lasts] = trained[lasts]
    first = undo_layout.Sequences(sequences.offsets, labels).at(sequences.offsets[:-1])
    return {
        "n_trained": sequences.per_row(trained),
        "n_labels_not_ids": sequences.per_row(trained & (labels != sequences.ids)),
        "n_open_turns": sequences.per_row(ends & ~rows.context.model.ends_turn(sequences.ids)),
        "first_is_trained": (first != IGNORED) & (first != -1),
        "labels_fit": examples.from_rows(examples.fits),
    }


LABELS = contract.Subject(
    metrics=(contract.Metrics(measure=_labels, needs=(contract.LABELLED,)),),
    invariants=laws("labels"),
)


# Loss weights and labels must agree; rows without weights always do.


def _weights(rows: stored_rows.StoredRows) -> contract.Columns:
    examples = rows.examples
    if examples.weights is None:
        count = len(examples.sequences)
        return {"weights_fit": np.ones(count, bool), "n_weights_off": np.zeros(count, np.int64)}
    values, fits = examples.weights
    good = np.where(examples.labels != IGNORED, np.isfinite(values) & (values > 0), values == 0)
    return {
        "weights_fit": examples.from_rows(fits),
        "n_weights_off": examples.sequences.per_row(~good),
    }


WEIGHTS = contract.Subject(
    metrics=(contract.Metrics(measure=_weights, needs=(contract.ANSWERS,)),),
    invariants=laws("weights"),
)


# Turns: where answers begin, and that each that is opened is closed. A message's text gives no
# control token, so what a generation prompt ends in is found in no text.


def _opened(sequences: undo_layout.Sequences, model: TargetModel) -> Ints:
    """The flat index behind each generation prompt, ascending."""
    tails = inference.tails(model).ids
    every = [inference.matches(sequences.ids, tail) + len(tail) for tail in tails]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *every]))


def _last(sequences: undo_layout.Sequences, places: Ints) -> Ints:
    """The last of some flat indexes in each sequence; -1 where it has none."""
    every = np.append(-1, places)
    found = every[np.searchsorted(places, sequences.offsets[1:])]
    return np.where(found >= sequences.offsets[:-1], found, -1)


def _turns(rows: stored_rows.StoredRows) -> contract.Columns:
    model, left_open, cut = rows.context.model, [], []
    for sequences in rows.sides.values():
        behind = _opened(sequences, model)
        opened = _last(sequences, behind - 1)
        closed = _last(sequences, _of_control(sequences, model))
        opens = inference.tails(model).opens
        left_open.append((opened >= 0) & (closed <= opened) & opens)
        if rows.paired:
            ends = sequences.offsets[:-1] + rows.table.column("prompt_length").to_numpy()
            cut.append(~np.isin(ends, behind) if len(behind) else np.zeros(len(ends), bool))
    columns: dict[str, Ints] = {"left_open": np.logical_or.reduce(left_open)}
    if rows.paired:
        return {**columns, "prompt_cut": np.logical_and.reduce(cut)}
    trained = rows.examples.labels != IGNORED
    begins = np.flatnonzero(trained & ~np.append(False, trained[:-1]))
    owner = sequences.owner(begins)
    # Text without turns is trained from its second token on.
    wrong = ~np.isin(begins, behind) & (begins - sequences.offsets[owner] > 1)
    count = np.bincount(owner[wrong & (len(behind) > 0)], minlength=len(sequences))
    return {**columns, "n_runs_elsewhere": count}


def _asked(rows: stored_rows.StoredRows) -> contract.Columns:
    """A hash of each example's tokens up to where its first answer begins; 0 where there is none,
    or another example of its row says what it asks."""
    (sequences, *_) = rows.sides.values()
    behind = _opened(sequences, rows.context.model)
    at = np.searchsorted(behind, sequences.offsets[:-1], side="right")
    first = np.append(behind, len(sequences.ids) + 1)[at]
    some = np.flatnonzero((first <= sequences.offsets[1:]) & (rows.place["sequence"] <= 0))
    found = np.zeros(len(sequences), np.uint64)
    if len(some):
        begins = sequences.offsets[some]
        lengths = first[some] - begins
        starts = offsets_of(lengths)
        place = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        ids = sequences.ids[place + np.repeat(begins, lengths)].astype(np.uint64)
        mixed = (ids | (place.astype(np.uint64) << np.uint64(32))) + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        found[some] = np.add.reduceat(mixed ^ (mixed >> np.uint64(31)), starts[:-1])
    return {"asked": found.view(np.int64)}


TURNS = contract.Subject(
    metrics=(
        contract.Metrics(measure=_turns, needs=(contract.RENDERED,), evidence=contract.STORED),
        contract.Metrics(measure=_asked, needs=(contract.APART,), evidence=contract.STORED),
    ),
    invariants=laws("turns"),
)


# Pairs of a chosen and a rejected answer to one prompt.


def _pairs(rows: stored_rows.StoredRows) -> contract.Columns:
    chosen, rejected = rows.sides.values()
    shared = rows.table.column("prompt_length").to_numpy()
    lengths = [np.diff(side.offsets) for side in (chosen, rejected)]
    # Slices of bytes are compared in one step each; 4 bytes an id.
    a, b = (side.ids.tobytes() for side in (chosen, rejected))
    starts, stops = (
        [(4 * offsets).tolist() for offsets in (chosen.offsets[cut], rejected.offsets[cut])]
        for cut in (slice(None, -1), slice(1, None))
    )
    sides = list(zip(*starts, *stops, strict=True))
    equal = [a[i:k] == b[j:m] for i, j, k, m in sides]
    common = 4 * np.clip(shared, 0, np.minimum(*lengths))
    ends = zip(sides, common.tolist(), strict=True)
    prefix = np.array([a[i : i + n] == b[j : j + n] for (i, j, _, _), n in ends], bool)
    return {
        "sides_equal": np.array(equal, bool),
        "prompt_shared": prefix & (shared <= np.minimum(*lengths)) & (shared > 0),
        "n_longer_side": np.maximum(*lengths),
        "n_behind_prompt": np.sum(lengths, axis=0) - 2 * shared,
    }


def _margins(rows: stored_rows.StoredRows) -> contract.Columns:
    if "margin" not in rows.table.schema.names:
        ones = np.ones(len(rows), bool)
        return {"margin_finite": ones, "has_margin": ~ones}
    column = rows.table.column("margin")
    missing = column.is_null().to_numpy()
    finite = np.isfinite(column.fill_null(0).to_numpy())
    return {"margin_finite": missing | finite, "has_margin": ~missing}


PAIRS = contract.Subject(
    metrics=(
        contract.Metrics(measure=_pairs, needs=(contract.COMPARES,)),
        contract.Metrics(measure=_margins, needs=(contract.COMPARES,)),
    ),
    invariants=laws("pairs"),
)


# Rated steps: their markers, positions and ratings, and the labels made from these.

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


STEPS = contract.Subject(
    metrics=(
        contract.Metrics(measure=_steps, needs=(contract.MARKS,)),
        contract.Metrics(measure=_after_error, needs=(contract.MARKS,), evidence=contract.STORED),
        contract.Metrics(measure=_positives, needs=(contract.MARKS,), level=contract.DATASET),
    ),
    invariants=laws("steps"),
)
