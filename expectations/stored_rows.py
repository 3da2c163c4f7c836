"""Rows of a shard with their layout undone, their row ids, and what was planned for them.

Metrics compare what is stored with what was planned. Row ids are numbers here (input, line and
sequence), and the texts that such numbers are written as.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations import undo_layout
from expectations.contract import ALONE, PLANNED, STORED, Context
from expectations.undo_layout import Ids, Sequences, StoredExamples
from stages.columns import Ints

GROUP_TOKENS = 1 << 20  # measured at once


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs to which row ids may refer.

    Attributes:
        first_error: by input, whether its format rates steps up to the first error only.
        named: by input, the name of its source; empty where sources have no names.
    """

    names: tuple[str, ...]
    first_error: tuple[bool, ...]
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """What the parts contain of some examples, in the order of the plan.

    Attributes:
        tokens: of each example; of the longer side of a pair.
        place: ``source``, ``line`` (from 1) and ``sequence`` (-1 for none) of each.
        digest: two 64-bit halves of each example's digest, as ``encode`` computed it.
        values: columns of single numbers (``prompt_length``, ``margin``).
        lists: columns of lists by their names in parts: offsets and flat values, as
            ``readback.contents`` has them.
    """

    tokens: Ints
    place: Mapping[str, Ints]
    digest: tuple[Ints, Ints]
    values: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    lists: Mapping[str, tuple[Ints, Ids]] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRows:
    """Some training rows: input of metrics of examples and of rows.

    Attributes:
        table: a piece of a shard in the context's layout, or a batch after ``encode`` with its loss
            weights as they are stored; each column in one chunk.
        sources: None while a part is made, where rows have no row ids yet.
        planned: what the examples must be; None while a part is made, and for a finished build.
    """

    table: pa.Table
    context: Context
    sources: Sources | None = None
    planned: Planned | None = None

    def __len__(self) -> int:
        """How many examples."""
        return undo_layout.count(self.table, self.context)

    @property
    def evidence(self) -> str:
        """What is known besides the rows themselves, as ``Context.evidence``."""
        if self.planned is not None:
            return PLANNED
        return ALONE if self.sources is None else STORED

    @property
    def paired(self) -> bool:
        """Whether each example is two sequences, a chosen and a rejected one."""
        return "chosen_ids" in self.table.schema.names

    @cached_property
    def examples(self) -> StoredExamples:
        """Sequences with their labels; pairs have no labels."""
        return undo_layout.examples(self.table, self.context)

    @cached_property
    def sides(self) -> dict[str, Sequences]:
        """The tokens of all examples by the prefix of their metrics: none, or one for each side."""
        if self.paired:
            return undo_layout.sides(self.table, self.context)
        return {"": self.examples.sequences}

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        """Where each training row's row ids begin, and the ids, flat."""
        return undo_layout.names(self.table)

    @cached_property
    def place(self) -> dict[str, Ints]:
        """``source`` (index among the inputs), ``line`` (from 1) and ``sequence`` of each example,
        read from its row id; -1 where it says none."""
        assert self.sources is not None
        ids = self.names[1]
        if self.planned is not None:
            place = self.planned.place
            if ids.equals(names_written(self.sources.names, place)):
                return {name: fitted(values, len(self), -1) for name, values in place.items()}
        found = names_read(self.sources.names, ids)
        return {name: fitted(values, len(self), -1) for name, values in found.items()}


def groups(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces of about a million tokens, each column in one chunk."""
    batches = table.to_batches()
    tokens = sum(chunk.nbytes for chunk in batches) // 8
    each = max(1, GROUP_TOKENS * len(batches) // max(tokens, 1))
    for start in range(0, len(batches), each):
        yield pa.Table.from_batches(batches[start : start + each]).combine_chunks()


_N = TypeVar("_N", bound=np.generic)


def fitted(values: npt.NDArray[_N], count: int, fill: int) -> npt.NDArray[_N]:
    """The first ``count`` values; missing ones are ``fill``."""
    if len(values) >= count:
        return values[:count]
    return np.concatenate([values, np.full(count - len(values), fill, values.dtype)])


PLACE = ("source", "line", "sequence")
# Path, line and sequence of a row id; numbers of more digits are none of ours.
_NAME = r"(?s)^(?P<source>.*):(?P<line>\d{1,18})(?:#(?P<sequence>\d{1,18}))?$"


def names_written(sources: Sequence[str], place: Mapping[str, Ints]) -> pa.Array:
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


def names_read(sources: Sequence[str], ids: pa.Array) -> dict[str, Ints]:
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


@dataclass(frozen=True, slots=True)
class ShardFile:
    """Input of metrics of a file.

    Attributes:
        table: what pyarrow reads; None where it does not open.
    """

    path: Path
    table: pa.Table | None
    context: Context
