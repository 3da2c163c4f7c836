"""What each stored example holds: its lists of numbers, and the digest of them.

The lists are named as parts have them (``folded`` for ids with their labels), so that they can be
compared number by number. The digests are those by which the plan knows examples: they were
computed where examples were encoded, before any part was written, and say which of a build are
equal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.stored_rows import StoredRows
from expectations.undo_layout import Ids
from stages.columns import Ints, count_per_row, list_parts, numbers
from stages.tokens.digest import digests, weighted_digests
from stages.tokens.folded_labels import folded_ids

Lists = tuple[Ints, Ids]  # offsets and flat values; floats by their bits

_UNRATED = -1.0  # stands for a step without a rating
_DIGESTED = ("folded", "chosen_ids", "rejected_ids", "input_ids", "labels", "step_labels")
COMPARED = (*_DIGESTED, "step_positions", "loss_weights")


def bits(values: npt.NDArray[np.floating]) -> Ids:
    """Numbers by their bits as float32, since NaN is not equal to itself."""
    return np.ascontiguousarray(values, np.float32).view(np.int32)


def ratings(column: pa.ListArray) -> Lists:
    """A column of ratings, those that are missing as -1."""
    offsets, values = list_parts(column)
    floats = values.to_numpy(zero_copy_only=False).astype(np.float32)
    return offsets, bits(np.nan_to_num(floats, nan=_UNRATED))


def lists(rows: StoredRows) -> dict[str, Lists]:
    """The lists of the stored examples, by the columns of parts."""
    if rows.paired:
        return {f"{side}ids": (one.offsets, one.ids) for side, one in rows.sides.items()}
    examples = rows.examples
    offsets, ids = examples.sequences.offsets, examples.sequences.ids
    if examples.steps is not None:
        return {
            "input_ids": (offsets, ids),
            "labels": (offsets, examples.labels),
            "step_positions": numbers(examples.steps[0]),
            "step_labels": ratings(examples.steps[1]),
        }
    found = {"folded": (offsets, folded_ids(ids, examples.labels))}
    if examples.weights is not None:
        found["loss_weights"] = (offsets, bits(examples.weights[0]))
    return found


def keys(rows: StoredRows, found: Mapping[str, Lists]) -> tuple[Ints, Ints]:
    """Two 64-bit halves of the digest of each stored example, computed as in ``encode``.

    Args:
        found: the lists of the rows.
    """
    if "loss_weights" not in found:
        return halves(digests(*(found[name] for name in _DIGESTED if name in found)))
    assert rows.examples.weights is not None
    offsets, folded = found["folded"]
    weights = rows.examples.weights[0]
    return halves(weighted_digests(offsets, folded, trained=folded < 0, weights=weights))


def halves(column: pa.Array) -> tuple[Ints, Ints]:
    """16-byte digests as two columns of int64."""
    # Arrow stores fixed-size binary as one buffer; a slice keeps the whole buffer and an offset.
    data = column.buffers()[1]
    view = np.frombuffer(data or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
    return view[0::2], view[1::2]


def differs(stored: Lists, wanted: Lists) -> npt.NDArray[np.bool_]:
    """Which stored examples do not have exactly the wanted numbers; one without any differs."""
    (at, values), (wanted_at, wanted_values) = stored, wanted
    if np.array_equal(at, wanted_at):
        unequal = values != wanted_values
        return count_per_row(at, unequal) > 0 if unequal.any() else np.zeros(len(at) - 1, bool)
    found = np.ones(len(at) - 1, bool)
    for index in range(min(len(at), len(wanted_at)) - 1):
        mine = values[at[index] : at[index + 1]]
        theirs = wanted_values[wanted_at[index] : wanted_at[index + 1]]
        found[index] = not np.array_equal(mine, theirs)
    return found
