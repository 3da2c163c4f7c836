"""Row ids as numbers: input, line and sequence; and the ids that such numbers are written as.

The ids of a shard are made by other code (``pipeline.shards.collect``), which is checked with this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.columns import Ints

PLACE = ("source", "line", "sequence")
# Path, line and sequence of a row id; numbers of more digits are none of ours.
_NAME = r"(?s)^(?P<source>.*):(?P<line>\d{1,18})(?:#(?P<sequence>\d{1,18}))?$"


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
    parts = pc.extract_regex(ids, _NAME)  # null where it is no such id
    known = parts.is_valid()

    def whole(values: pa.Array) -> Ints:
        return np.asarray(pc.fill_null(values.cast(pa.int64()), -1).to_numpy())

    def number(name: str) -> Ints:
        text = parts.field(name)  # empty where it is left out
        return whole(pc.if_else(pc.and_(known, pc.not_equal(text, "")), text, None))

    ordinals = pc.index_in(parts.field("source"), pa.array(sources, pa.string()))
    source = whole(pc.if_else(known, ordinals, None))
    return {"source": source, "line": number("line"), "sequence": number("sequence")}
