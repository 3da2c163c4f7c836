"""A 128-bit hash of an example: equal examples have equal digests, in whatever shard they are.

It is computed from ids and labels alone, so ``--dedup`` finds equal examples across files, and the
checks of a finished build can compare what is stored with what was encoded.

XXH3 is ten times as fast as a cryptographic hash and as unlikely to collide by chance: among a
billion examples, with a probability of about 1e-21. Whoever writes the data could make two examples
collide, so nothing is left out of a build for its digest alone: see ``pipeline.shards.dedup``.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_128_digest

from stages.columns import Ints, count_per_row

Side = tuple[Ints, npt.NDArray[np.int32]]  # offsets and flat values of one list per row


def _bytes_of(side: Side) -> list[memoryview]:
    """The bytes of each row, 4 for a number, as views."""
    offsets, values = side
    view = np.ascontiguousarray(values).view(np.uint8).data
    return [view[a:b] for a, b in itertools.pairwise((offsets * 4).tolist())]


def digests(*sides: Side) -> pa.Array:
    """128-bit XXH3 of each row's numbers, over all the given lists."""
    if len(sides) == 1:
        return pa.array(list(map(xxh3_128_digest, _bytes_of(sides[0]))), pa.binary(16))
    # The lengths are hashed first: [1, 2], [3] and [1], [2, 3] hold the same numbers.
    lengths = np.stack([np.diff(offsets) for offsets, _ in sides], axis=1).astype("<i4")
    width = 4 * len(sides)
    packed = lengths.tobytes()
    sizes = [packed[at : at + width] for at in range(0, len(packed), width)]
    rows = zip(sizes, *map(_bytes_of, sides), strict=True)
    return pa.array([xxh3_128_digest(b"".join(row)) for row in rows], pa.binary(16))


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
