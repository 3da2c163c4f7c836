"""A 128-bit hash of an example: equal examples have equal digests, in whatever shard they are.

It is computed from ids and labels alone, so ``--dedup`` finds equal examples across files, and the
checks of a finished build can compare what is stored with what was encoded.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.columns import Ints, count_per_row

Side = tuple[Ints, npt.NDArray[np.int32]]  # offsets and flat values of one list per row


def digests(*sides: Side) -> pa.Array:
    """128-bit BLAKE2b of each row's numbers, over all the given lists."""
    # Views of the raw bytes: hashlib then reads the arrays in place, 4 bytes a number.
    views = [(np.ascontiguousarray(v).view(np.uint8).data, (o * 4).tolist()) for o, v in sides]
    lengths = np.stack([np.diff(o) for o, _ in sides], axis=1).astype("<i4")
    # The lengths are hashed first: [1, 2], [3] and [1], [2, 3] hold the same numbers.
    sizes, width = lengths.tobytes(), 4 * len(sides)
    hashes = []
    for row in range(len(lengths)):
        digest = hashlib.blake2b(sizes[row * width : (row + 1) * width], digest_size=16)
        for view, bounds in views:
            digest.update(view[bounds[row] : bounds[row + 1]])
        hashes.append(digest.digest())
    return pa.array(hashes, pa.binary(16))


def weighted_digests(
    offsets: Ints,
    folded: npt.NDArray[np.int32],
    trained: npt.NDArray[np.bool_],
    weights: npt.NDArray[np.float32],
) -> pa.Array:
    """Digests of examples with loss weights.

    An example whose weights are 1 where it is trained and 0 elsewhere trains as one without weights
    does, so it has the same digest.

    Args:
        trained, weights: of each token.
    """
    plain = digests((offsets, folded))
    more = count_per_row(offsets, weights != trained) > 0
    if not more.any():
        return plain
    # Weights are hashed by their bits, since ``digests`` takes 32-bit numbers.
    bits = np.ascontiguousarray(weights).view(np.int32)
    both = digests((offsets, folded), (offsets, bits))
    chosen = zip(more.tolist(), both.to_pylist(), plain.to_pylist(), strict=True)
    return pa.array([a if own else b for own, a, b in chosen], pa.binary(16))
