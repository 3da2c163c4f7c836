"""Rows of ids from what a template prints and what a row says itself, run after run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import native
from stages.columns import Ints, make_list, numbers, offsets_of

Ids = npt.NDArray[np.int32]


def put_together(
    fixed: Sequence[Ids], own: tuple[Ids, Ints], trained: npt.NDArray[np.bool_], places: Ints
) -> tuple[Ids, Ints]:
    """Runs of ids, one behind the other, folded.

    Args:
        fixed: runs that are folded already.
        own: ids of the other runs, and where each starts; ``trained``: which of them are.
        places: which runs; the own ones are counted behind the fixed ones.

    Returns:
        The ids, and where each place starts.
    """
    ids, starts = own
    sizes, lengths = np.array([len(run) for run in fixed], np.int64), np.diff(starts)
    module = native.module()
    if module is not None:
        bounds = np.empty(len(places) + 1, np.int64)
        folded = np.empty(int(np.concatenate([sizes, lengths])[places].sum()), np.int32)
        printed = np.concatenate(fixed) if fixed else ids[:0]
        module.assemble(printed, offsets_of(sizes), ids, starts, trained, places, folded, bounds)
        return folded, bounds
    own_ids = np.where(np.repeat(trained, lengths), ~ids, ids)
    pool = make_list(
        offsets_of(np.concatenate([sizes, lengths])), pa.array(np.concatenate([*fixed, own_ids]))
    )
    bounds, folded = numbers(pool.take(pa.array(places)))
    return folded, bounds
