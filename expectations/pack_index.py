"""An index of packs as it is stored, beside the lengths of the examples that it names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.contract import PLANNED, STORED, Context
from expectations.undo_layout import column
from stages.columns import Ints, list_parts


@dataclass(frozen=True)
class IndexRows:
    """All packs of one side: input of metrics of rows, where packs are an index.

    Attributes:
        table: ``examples`` (list<int64>: numbers of the side's examples in stored order, from 0)
            and ``tokens`` (int32), one row a pack.
        lengths: tokens of each stored example of the side, read from its shards.
        planned: the examples of all packs, flat, and how many each has; None for a finished build.
    """

    table: pa.Table
    lengths: npt.NDArray[np.integer]
    context: Context
    planned: tuple[Ints, Ints] | None = None

    @property
    def evidence(self) -> str:
        """What is known besides the index and the shards, as ``Context.evidence``."""
        return STORED if self.planned is None else PLANNED

    @cached_property
    def packs(self) -> tuple[Ints, Ints]:
        """Where each pack's examples begin, and the examples, flat."""
        offsets, values = list_parts(column(self.table, "examples"))
        return offsets, values.to_numpy()

    @property
    def tokens(self) -> Ints:
        """What the index says of each pack's tokens."""
        stored: Ints = column(self.table, "tokens").to_numpy().astype(np.int64)
        return stored
