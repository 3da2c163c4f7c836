"""Training rows: packs of several examples and how full they are; padding, its side and mask."""

import numpy as np
import numpy.typing as npt

from expectations import contract
from expectations.invariants import laws
from expectations.stored_rows import SIDES, Dataset, StoredRows
from expectations.undo_layout import Bools, IndexRows, column, counts
from stages import columns
from stages.tokens.packed import GLOBAL_EXAMPLES

MANY_PACKS = 10  # with fewer, how full they are says nothing about the packing
MILLION = 1_000_000


def _packs(rows: StoredRows) -> contract.Columns:
    stored = np.diff(columns.numbers(column(rows.table, "input_ids"))[0])
    at, lengths = columns.numbers(column(rows.table, "seq_lengths"))
    # Where each example begins in its pack: tokens before it in all packs, less those before its
    # pack. Positions restart there, if the pack has a token at that place.
    begins = columns.offsets_of(lengths)[:-1]
    begins = begins - np.repeat(columns.offsets_of(lengths)[at[:-1]], np.diff(at))
    restarts = (lengths > 0) & (begins < np.repeat(stored, np.diff(at)))
    return {
        "n_tokens": stored,
        "n_in_examples": columns.sum_per_row(at, lengths.astype(np.int64)),
        "n_examples": np.diff(at),
        "n_names": np.diff(rows.names[0]),
        "n_restarts": columns.count_per_row(at, restarts),
        "half_empty": stored * 2 <= rows.context.max_length,
    }


def _packing(dataset: Dataset) -> contract.Columns:
    """How full packs are, and how many of them could be merged.

    Best fit opens a pack only for an example for which no other pack has room. So at most one pack
    of each plan is at most half full; two of them would have been one.
    """
    packs, tokens = dataset.rows(contract.ROW), dataset.total(contract.ROW, "n_tokens")
    longest = dataset.context.max_length
    mergeable = 0
    for side in SIDES:
        planned_apart = max(
            1, -(-dataset.total(contract.ROW, "n_examples", side) // GLOBAL_EXAMPLES)
        )
        # Where packs hold examples of one part each, every part was packed apart.
        planned_apart = max(planned_apart, dataset.declared.get(f"packed_apart_{side}", 0))
        mergeable += max(0, dataset.total(contract.ROW, "half_empty", side) - planned_apart)
    full = tokens * MILLION // (packs * longest) if packs >= MANY_PACKS else MILLION
    return {"n_packs": [packs], "n_packs_mergeable": [mergeable], "efficiency_ppm": [full]}


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_packs, level=contract.ROW, needs=(contract.PACKS,)),
        contract.Metrics(measure=_packing, level=contract.DATASET, needs=(contract.SHARES,)),
    ),
    invariants=laws("packs"),
)


# An index of packs: numbers of stored examples, and how many tokens each pack has.


def _index(rows: IndexRows) -> contract.Columns:
    at, examples = rows.packs
    there = (examples >= 0) & (examples < len(rows.lengths))
    inside = np.where(there, examples, 0)
    lengths = np.where(there, rows.lengths[inside], 0) if len(rows.lengths) else 0 * examples
    return {
        "n_tokens": rows.tokens,
        "n_in_examples": columns.sum_per_row(at, lengths.astype(np.int64)),
        "n_examples": np.diff(at),
        "n_first": columns.count_per_row(at, _first(examples, there, len(rows.lengths))),
        "n_absent": columns.count_per_row(at, ~there),
        "half_empty": rows.tokens * 2 <= rows.context.max_length,
    }


def _first(examples: columns.Ints, there: np.ndarray, count: int) -> np.ndarray:
    """Which entries of an index are the first that name their example."""
    places = np.flatnonzero(there)[::-1]
    first = np.full(count, -1, np.int64)
    first[examples[places]] = places  # from the last to the first, which stays
    found = np.zeros(len(examples), bool)
    found[first[first >= 0]] = True
    return found


def _misplaced(rows: IndexRows) -> contract.Columns:
    """Entries of each pack that are not those of the plan; all, where its size is another."""
    assert rows.planned is not None
    (at, examples), (order, sizes) = rows.packs, rows.planned
    if len(at) - 1 != len(sizes) or len(examples) != len(order):
        return {"n_misplaced": np.diff(at) + 1}
    bounds = columns.offsets_of(sizes)
    moved = (at[1:] != bounds[1:]) | (at[:-1] != bounds[:-1])
    return {"n_misplaced": columns.count_per_row(at, examples != order) + moved}


def _entries(dataset: Dataset) -> contract.Columns:
    return {
        "examples_in_packs": [dataset.total(contract.ROW, "n_examples")],
        "examples_in_packs_once": [dataset.total(contract.ROW, "n_first")],
        "tokens_in_packs": [dataset.total(contract.ROW, "n_tokens")],
    }


INDEX = contract.Subject(
    metrics=(
        contract.Metrics(measure=_index, level=contract.ROW, needs=(contract.INDEXED,)),
        contract.Metrics(
            measure=_misplaced,
            level=contract.ROW,
            needs=(contract.INDEXED,),
            evidence=contract.PLANNED,
        ),
        contract.Metrics(measure=_entries, level=contract.DATASET, needs=(contract.INDEXED,)),
    ),
    invariants=laws("pack_index"),
)


# Padding: its token and its side, the attention mask, and the token types of encoders.


def _padding(rows: StoredRows) -> contract.Columns:
    """Counts over all sequences of a row, and whether these have the same width."""
    each = [_one_side(rows, prefix) for prefix in rows.sides]
    widths = [side.pop("width") for side in each]
    merged = {name: np.sum([side[name] for side in each], axis=0) for name in each[0]}
    return {**merged, "width": widths[0], "same_width": widths[0] == widths[-1]}


def _one_side(rows: StoredRows, prefix: str) -> dict[str, columns.Ints]:
    table, model = rows.table, rows.context.model
    offsets, ids = columns.numbers(column(table, f"{prefix}ids" if prefix else "input_ids"))
    mask_offsets, mask = columns.numbers(column(table, f"{prefix}attention_mask"))
    width = np.diff(offsets)
    # Where the mask of a row has another length than its ids, all of it counts as wrong (-1).
    if not np.array_equal(mask_offsets, offsets):
        wrong = np.diff(mask_offsets) != width
        mask = np.where(np.repeat(wrong, width), np.int8(-1), np.int8(1))
    real = mask == 1
    expected = _in_place(offsets, counts(offsets, real), model.profile.padding_side == "left")
    return {
        "width": width,
        "n_mask_out_of_place": columns.count_per_row(offsets, real != expected),
        "n_padding_not_pad": columns.count_per_row(offsets, ~real & (ids != model.pad_id)),
        "n_mask_not_binary": columns.count_per_row(offsets, (mask != 0) & (mask != 1)),
        "n_padding_trained": _trained(rows, prefix, offsets, ~real),
        "n_types_out_of_place": _types_out_of_place(
            rows, prefix, offsets=offsets, ids=ids, real=real
        ),
    }


def _trained(rows: StoredRows, prefix: str, offsets: columns.Ints, padding: Bools) -> columns.Ints:
    """How many tokens of padding have a label, or a loss weight; pairs have neither."""
    found = np.zeros(len(offsets) - 1, np.int64)
    for name, rest in (("labels", columns.IGNORED), ("loss_weights", 0)):
        if prefix or name not in rows.table.schema.names:
            continue
        at, values = columns.list_parts(column(rows.table, name))
        if np.array_equal(at, offsets):  # judged by labels_fit_ids otherwise
            found += columns.count_per_row(offsets, padding & (values.to_numpy() != rest))
    return found


def _in_place(offsets: columns.Ints, real: columns.Ints, left: bool) -> Bools:
    """Which tokens are no padding where all of it is on its side.

    Args:
        real: how many of each row's tokens are no padding.
    """
    width = np.diff(offsets)
    wide = int(width[0]) if len(width) else 0
    expected: Bools
    if (width == wide).all():
        index, own = np.arange(wide, dtype=np.int32), real.astype(np.int32)[:, None]
        expected = (index >= wide - own if left else index < own).reshape(-1)
    else:
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], width)
        pads = np.repeat(width - real, width)
        expected = place >= pads if left else place < np.repeat(real, width)
    return expected


def _types_out_of_place(
    rows: StoredRows, prefix: str, offsets: columns.Ints, ids: npt.NDArray[np.int32], real: Bools
) -> columns.Ints:
    """How many token types are not 1 after the first separator and 0 before it, in each row; in
    families without token types there must be no such column."""
    table, model = rows.table, rows.context.model
    width = np.diff(offsets)
    name = f"{prefix}token_type_ids"
    wanted = model.profile.pair is not None and model.profile.pair.token_types
    if not wanted or name not in table.schema.names:
        return 0 * width if wanted == (name in table.schema.names) else width
    at, types = columns.numbers(column(table, name))
    if not np.array_equal(at, offsets):
        return np.maximum(np.diff(at), 1)
    seen = columns.offsets_of(ids == model.end_of_turn_id)  # separators before each token
    answer = seen[:-1] > np.repeat(seen[offsets[:-1]], width)
    wrong: Bools = types != (answer & real)
    return columns.count_per_row(offsets, wrong)


PADDING = contract.Subject(
    metrics=(contract.Metrics(measure=_padding, level=contract.ROW, needs=(contract.PADS,)),),
    invariants=laws("padding"),
)
