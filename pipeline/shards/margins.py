"""How many pairs of a build have a margin, and how many have none.

The column is stored when at least one pair has a margin; the others are null in it. In a loss that
subtracts margins a pair without one counts as margin 0, which is that loss without margins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.audits import share, with_tolerances
from pipeline.amounts import Sums
from pipeline.manifest.counts import MarginCounts
from pipeline.shards.examples import columns_of
from stages.columns import Ints
from stages.kinds import Kind

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Margins(Sums):
    """Pairs with a margin and without, and those whose margin is below zero."""

    present: int = 0
    absent: int = 0
    negative: int = 0

    def reversed_by(self, tolerances: Mapping[str, float]) -> bool:
        """Whether so many margins are below zero that the audit of margins fails a build.

        Args:
            tolerances: the user's, as ``audit.limit`` to number.
        """
        limit = with_tolerances(tolerances)["margins"]["fail"]
        return share(self.negative, self.present) > limit

    def recorded(self) -> MarginCounts:
        """The manifest's ``rm.margins``; the audit of margins has those below zero."""
        return MarginCounts(self.present, self.absent)


def of_column(column: pa.Array | pa.ChunkedArray) -> Margins:
    """The counts of a float32 column, which is null where a pair has no margin."""
    values = column.drop_null().to_numpy()
    return Margins(len(values), column.null_count, int((values < 0).sum()))


def of_parts(kind: Kind, plans: Sequence[Path], starts: Ints, kept: Bools) -> Margins | None:
    """The counts of the pairs that a build keeps; None in tasks without pairs.

    Args:
        plans: the numbers of each part; ``starts``: the number of its first example, and the total.
        kept: which examples are.
    """
    if not kind.compares:
        return None
    total = Margins()
    for path, (start, stop) in zip(plans, pairwise(starts), strict=True):
        column = columns_of(path, ("margin",)).column("margin")
        total += of_column(column.filter(pa.array(kept[start:stop])))
    return total
