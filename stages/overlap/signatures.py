"""MinHash signatures: how alike two rows are, from a few numbers of each.

The runs of n words of a row are a set; two rows are as alike as their sets (Jaccard: what both
have, as a share of what either has). Each of the numbers of a signature is equal in two rows with
that probability, so the share of equal ones estimates it. The library rensa makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from stages import columns
from stages.columns import Ints
from stages.contract import Batch
from stages.errors import UsageError
from stages.kinds import Kind
from stages.overlap import said, words
from stages.overlap.hashes import Hashes, mixed, rolling
from stages.overlap.settings import Likeness

ROW, QUESTION = "signature", "question_signature"
NUMBERS = 128  # of a signature: the estimate's standard deviation is at most 0.045
WIDTH = 4 * NUMBERS  # bytes
Signatures = npt.NDArray[np.uint32]
_SEED = 1
_EMPTY = np.uint32(2**32 - 1)  # every number of a row without words
_BLOCK = 1 << 18  # characters that are hashed at once


def _library() -> Any:
    """The class that makes signatures.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from rensa import RMinHash
    except ImportError as error:
        raise UsageError(
            "--near-dedup needs the package rensa, which is not installed.",
            "Install it: pip install 'posttrain-pipeline[near]'.",
        ) from error
    return RMinHash


def version() -> str:
    """What the numbers of a signature depend on beside the words."""
    return f"rensa {_library().ALGORITHM_VERSION}, {NUMBERS} numbers"


def _runs(texts: Sequence[str], rows: Ints, count: int, size: int) -> tuple[Hashes, Ints]:
    """A hash for each run of words of each row, and where each row's begin.

    A run that ends with the row is as long as the words that are left: short rows have runs too.
    """
    own: list[list[bytes]] = [[] for _ in range(count)]
    for text, row in zip(texts, rows.tolist(), strict=True):
        own[row] += words.plain(text).split()
    ends = [words.END] * (size - 1)
    every = [word for some in own if some for word in (*some, *ends)]
    hashed = np.fromiter(map(xxh3_64_intdigest, every), np.uint64, len(every))
    begins = np.fromiter((word != words.END for word in every), bool, len(every))
    found = mixed(rolling(hashed, size))
    return found[begins[: len(found)]], columns.offsets_of(np.array([*map(len, own)], np.int64))


def of_texts(texts: Sequence[str], rows: Ints, count: int, size: int) -> Signatures:
    """Signatures of rows.

    Args:
        rows: of each text, ascending; ``count``: of them; ``size``: words of a run.

    Returns:
        One row of ``NUMBERS`` for each.
    """
    made = np.empty((count, NUMBERS), np.uint32)
    for first, last in _blocks(texts, rows, count):
        some = slice(*np.searchsorted(rows, [first, last]).tolist())
        hashes, offsets = _runs(texts[some], rows[some] - first, last - first, size)
        matrix = _library().digest_matrix_from_flat_token_hashes(
            hashes, offsets.astype(np.uint64), num_perm=NUMBERS, seed=_SEED
        )
        made[first:last] = matrix.to_rows()
    return made


def _blocks(texts: Sequence[str], rows: Ints, count: int) -> Iterator[tuple[int, int]]:
    """Runs of rows with texts of about one size."""
    sizes = np.zeros(count, np.int64)
    np.add.at(sizes, rows, np.fromiter(map(len, texts), np.int64, len(texts)))
    block = columns.offsets_of(sizes)[:-1] // _BLOCK
    bounds = np.flatnonzero(np.diff(block, prepend=-1, append=-2)).tolist() if count else []
    yield from pairwise(bounds)


def put(batch: Batch, kind: Kind, likeness: Likeness) -> Batch:
    """The batch with a column for each signature that is asked for."""
    for name, whole in likeness.columns:
        texts, rows = said.texts(batch, kind, whole)
        made = of_texts(texts, rows, batch.num_rows, likeness.size)
        content = pa.py_buffer(made.astype("<u4").tobytes())
        kind_of = columns.TYPES[name]
        column = pa.Array.from_buffers(kind_of, batch.num_rows, [None, content])
        batch = columns.put(batch, name, column)
    return batch


def numbers(column: pa.Array | pa.ChunkedArray) -> Signatures:
    """The signatures of a column, mapped as it is: one row of ``NUMBERS`` for each."""
    whole = columns.whole(column)
    if not len(whole):
        return np.zeros((0, NUMBERS), np.uint32)
    flat = np.frombuffer(whole.buffers()[1], "<u4")
    first = whole.offset * NUMBERS
    return flat[first : first + len(whole) * NUMBERS].reshape(-1, NUMBERS)


def empty(signatures: Signatures) -> npt.NDArray[np.bool_]:
    """Which rows have no words, so that nothing is like them."""
    found: npt.NDArray[np.bool_] = np.all(signatures == _EMPTY, axis=1)
    return found
