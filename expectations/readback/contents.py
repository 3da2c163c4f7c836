"""What each stored example holds: its lists of numbers, and a 128-bit key of them.

The lists are named as parts have them (``folded`` for ids with their labels), so that they can be
compared number by number. The keys say which examples of a build are equal. They are not the
digests that ``--dedup`` goes by: those are computed once, where examples are encoded, and are
cryptographic, since equal digests drop a row. Two rows that were taken for equal here would only
end the build, so a faster hash will do; its key keeps collisions that others have published out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from expectations.readback.stored_rows import StoredRows
from expectations.readback.undo_layout import Ids
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers
from stages.tokens.digest import digests, weighted_digests
from stages.tokens.folded_labels import folded_ids

Lists = tuple[Ints, Ids]  # offsets and flat values; floats by their bits

_KEY = 0x6578616D706C6573
_UNRATED = -1.0  # stands for a step without a rating
_DIGESTED = ("folded", "chosen_ids", "rejected_ids", "input_ids", "labels", "step_labels")
COMPARED = (*_DIGESTED, "step_positions", "loss_weights")
# Labels of rated steps follow from markers and ratings: that is judged by labels_match_ratings.
_HASHED = ("folded", "chosen_ids", "rejected_ids", "input_ids", "step_labels")
_FACTORS = (1, 0x9E3779B97F4A7C15 - 2**64)  # odd, so that no bit of a hash is lost


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


def _keys(several: Sequence[Lists]) -> npt.NDArray[np.int64]:
    """Two halves of a hash of each example's lists, one or two: shape (examples, 2)."""
    digest = xxhash.xxh3_128_digest
    found = np.zeros((len(several[0][0]) - 1, 2), np.int64)
    for (at, values), factor in zip(several, _FACTORS, strict=False):
        data = values.view(np.uint8).data
        joined = b"".join([digest(data[i:j], _KEY) for i, j in pairwise((at * 4).tolist())])
        # Sums of numbers of 64 bits, which wrap; which list a hash is of decides its factor.
        found += np.frombuffer(joined, np.int64).reshape(-1, 2) * np.int64(factor)
    return found


def keys(rows: StoredRows, found: Mapping[str, Lists]) -> tuple[Ints, Ints]:
    """Two 64-bit halves of a key of each example: equal examples have equal keys.

    Args:
        found: the lists of the rows.
    """
    made = _keys([found[name] for name in _HASHED if name in found])
    if "loss_weights" in found:
        made = _weighted(rows, found, made)
    return made[:, 0], made[:, 1]


def _weighted(
    rows: StoredRows, found: Mapping[str, Lists], plain: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The keys where examples have weights, which count only where they say more than labels do."""
    assert rows.examples.weights is not None
    offsets = rows.examples.sequences.offsets
    trained = rows.examples.labels != IGNORED
    more = count_per_row(offsets, rows.examples.weights[0] != trained) > 0
    return np.where(more[:, None], _keys([found["folded"], found["loss_weights"]]), plain)


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


def _taken(column: Lists, which: Ints) -> Lists:
    at, values = column
    pieces = [values[at[i] : at[i + 1]] for i in which.tolist()]
    lengths = [len(piece) for piece in pieces]
    empty = np.zeros(0, np.int32)
    return np.cumsum([0, *lengths]).astype(np.int64), np.concatenate([empty, *pieces])


def digests_of(stored: Mapping[str, Lists], which: Ints) -> pa.Array:
    """The digests of some stored examples, computed as in ``encode`` from what is stored."""
    found = {name: _taken(column, which) for name, column in stored.items()}
    if "loss_weights" in found:
        (offsets, folded), weights = found["folded"], found["loss_weights"][1].view(np.float32)
        return weighted_digests(offsets, folded, trained=folded < 0, weights=weights)
    return digests(*(found[name] for name in _DIGESTED if name in found))
