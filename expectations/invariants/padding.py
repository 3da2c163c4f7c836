"""Padding: its token and its side, the attention mask, and the token types of encoders."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from expectations.contract import (
    COMPARES,
    ENCODER,
    PADS,
    ROW,
    Columns,
    Invariant,
    Metrics,
    Subject,
    holds,
    none,
)
from expectations.stored_rows import StoredRows
from expectations.undo_layout import Bools, column, counts
from stages.columns import Ints, count_per_row, numbers, offsets_of


def _padding(rows: StoredRows) -> Columns:
    """Counts over all sequences of a row, and whether these have the same width."""
    each = [_one_side(rows, prefix) for prefix in rows.sides]
    widths = [side.pop("width") for side in each]
    merged = {name: np.sum([side[name] for side in each], axis=0) for name in each[0]}
    return {**merged, "width": widths[0], "same_width": widths[0] == widths[-1]}


def _one_side(rows: StoredRows, prefix: str) -> dict[str, Ints]:
    table, model = rows.table, rows.context.model
    offsets, ids = numbers(column(table, f"{prefix}ids" if prefix else "input_ids"))
    mask_offsets, mask = numbers(column(table, f"{prefix}attention_mask"))
    width = np.diff(offsets)
    # Where the mask of a row has another length than its ids, all of it counts as wrong (-1).
    if not np.array_equal(mask_offsets, offsets):
        wrong = np.diff(mask_offsets) != width
        mask = np.where(np.repeat(wrong, width), np.int8(-1), np.int8(1))
    real = mask == 1
    expected = _in_place(offsets, counts(offsets, real), model.profile.padding_side == "left")
    return {
        "width": width,
        "n_mask_out_of_place": count_per_row(offsets, real != expected),
        "n_padding_not_pad": count_per_row(offsets, ~real & (ids != model.pad_id)),
        "n_mask_not_binary": count_per_row(offsets, (mask != 0) & (mask != 1)),
        "n_types_out_of_place": _types_out_of_place(
            rows, prefix, offsets=offsets, ids=ids, real=real
        ),
    }


def _in_place(offsets: Ints, real: Ints, left: bool) -> Bools:
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
    rows: StoredRows, prefix: str, offsets: Ints, ids: npt.NDArray[np.int32], real: Bools
) -> Ints:
    """How many token types are not 1 after the first separator and 0 before it, in each row; in
    families without token types there must be no such column."""
    table, model = rows.table, rows.context.model
    width = np.diff(offsets)
    name = f"{prefix}token_type_ids"
    wanted = model.profile.pair is not None and model.profile.pair.token_types
    if not wanted or name not in table.schema.names:
        return 0 * width if wanted == (name in table.schema.names) else width
    at, types = numbers(column(table, name))
    if not np.array_equal(at, offsets):
        return np.maximum(np.diff(at), 1)
    seen = offsets_of(ids == model.end_of_turn_id)  # separators before each token
    answer = seen[:-1] > np.repeat(seen[offsets[:-1]], width)
    wrong: Bools = types != (answer & real)
    return count_per_row(offsets, wrong)


SUBJECT = Subject(
    metrics=(Metrics(measure=_padding, level=ROW, needs=(PADS,)),),
    invariants=(
        Invariant(
            # Padding is the pad token, on the declared side, exactly where the attention mask is 0.
            name="padding_in_place",
            why="padding on the wrong side breaks flash-attention and moves the token a reward is "
            "read at",
            checks=(
                none("n_mask_out_of_place"),
                none("n_padding_not_pad"),
                none("n_mask_not_binary"),
                holds("same_width"),
            ),
            breaks={"n_padding_not_pad": 1},
            needs=(PADS,),
            level=ROW,
        ),
        Invariant(
            name="token_types_in_place",  # 1 on the answer and nowhere else
            why="BERT separates the two texts by their token types",
            checks=(none("n_types_out_of_place"),),
            breaks={"n_types_out_of_place": 1},
            needs=(COMPARES, PADS, ENCODER),
            level=ROW,
        ),
    ),
)
