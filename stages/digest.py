"""What an example is, in 128 bits: the same for equal examples, whatever shard they lie in."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.columns import Ints, count_per_row

Side = tuple[Ints, npt.NDArray[np.int32]]


def digests(*sides: Side) -> pa.Array:
    """128-bit BLAKE2b of each row's numbers, over all the given lists."""
    views = [(np.ascontiguousarray(v).view(np.uint8).data, (o * 4).tolist()) for o, v in sides]
    lengths = np.stack([np.diff(o) for o, _ in sides], axis=1).astype("<i4")
    sizes, width = lengths.tobytes(), 4 * len(sides)  # lists that end elsewhere differ
    made = []
    for row in range(len(lengths)):
        digest = hashlib.blake2b(sizes[row * width : (row + 1) * width], digest_size=16)
        for view, bounds in views:
            digest.update(view[bounds[row] : bounds[row + 1]])
        made.append(digest.digest())
    return pa.array(made, pa.binary(16))


def weighted_digests(
    offsets: Ints,
    folded: npt.NDArray[np.int32],
    trained: npt.NDArray[np.bool_],
    weights: npt.NDArray[np.float32],
) -> pa.Array:
    """Digests of examples with loss weights; one whose weights say no more than its labels do
    (1 where trained, 0 elsewhere) has the digest that it has without them.

    Args:
        trained, weights: of each token.
    """
    plain = digests((offsets, folded))
    more = count_per_row(offsets, weights != trained) > 0
    if not more.any():
        return plain
    bits = np.ascontiguousarray(weights).view(np.int32)
    both = digests((offsets, folded), (offsets, bits))
    chosen = zip(more.tolist(), both.to_pylist(), plain.to_pylist(), strict=True)
    return pa.array([a if own else b for own, a, b in chosen], pa.binary(16))
