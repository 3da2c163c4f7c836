"""Row ids as numbers: input, line and sequence; and the ids that such numbers are written as.

The ids of a shard are made by other code (``pipeline.shards.collect``), which is checked with this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from stages.columns import Ints

PLACE = ("source", "line", "sequence")
_NAME = r"(?s)^(.*):(\d+)(?:#(\d+))?$"  # path, line and sequence of a row id


def written(sources: Sequence[str], place: Mapping[str, Ints]) -> pa.Array:
    """The ids of examples.

    Args:
        sources: names of the inputs; ``place``: ``source`` among them, ``line`` from 1 and
            ``sequence``, -1 for none, of each example.
    """
    starts = pa.array([f"{name}:" for name in sources], pa.string())
    which = place["source"]
    first = starts[0] if len(sources) == 1 else starts.take(pa.array(which))
    ids = pc.binary_join_element_wise(first, pa.array(place["line"]).cast(pa.string()), "")
    fanned = place["sequence"] >= 0
    if not fanned.any():
        return ids
    numbers = pa.array(place["sequence"]).cast(pa.string())
    ends = pc.binary_join_element_wise("#", numbers, "")
    return pc.binary_join_element_wise(ids, pc.if_else(pa.array(fanned), ends, ""), "")


def read(sources: Sequence[str], ids: pa.Array) -> dict[str, Ints]:
    """``source``, ``line`` and ``sequence`` of each id; -1 where it says none."""
    ordinals = {name: index for index, name in enumerate(sources)}
    parts = pl.col("name").str.extract_groups(_NAME).struct
    source = parts[0].replace_strict(ordinals, default=-1, return_dtype=pl.Int64)
    line, sequence = (parts[i].cast(pl.Int64, strict=False).fill_null(-1) for i in (1, 2))
    places = (
        pl.Series("name", ids, dtype=pl.String)
        .to_frame()
        .select(source.alias("source"), line.alias("line"), sequence.alias("sequence"))
    )
    return {name: np.asarray(places[name].to_numpy()) for name in PLACE}
