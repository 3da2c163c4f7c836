"""What ``--dedup`` leaves out is compared with what stays: no example goes for its digest alone.

Digests are XXH3, which nobody's chance, but somebody's intent, can make equal for two examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.shards.collect import Collector, PartSource
from stages.columns import Ints
from stages.errors import DataError

_BLOCK = 4096  # examples that are compared at once
_NUMBERS = ("margin", "prompt_length")  # are no part of what makes two examples equal


def require_equal(
    pairs: tuple[Ints, Ints], sources: Sequence[PartSource], starts: Ints, stored: Sequence[str]
) -> None:
    """Compare every example that has another's digest with that example.

    Args:
        pairs: examples by their number, and for each the one whose digest it has.
        sources: of the parts; ``starts``: number of each part's first example, and the total.
        stored: columns of the parts that shards are made of.

    Raises:
        DataError: two examples with one digest differ.
    """
    again, first = pairs
    for start in range(0, len(again), _BLOCK):
        collect = Collector(sources, starts)  # maps no more parts than the block has examples of
        pair = [collect.picks(order[start : start + _BLOCK]) for order in (again, first)]
        for name in stored:
            if name in _NUMBERS:
                continue
            one, other = (collect.blocks(picked, name)(0, len(picked)) for picked in pair)
            if one.equals(other):
                continue
            row = next(i for i in range(len(one)) if not one[i].equals(other[i]))
            names = [collect.row_ids(picked)(row, row + 1)[0].as_py() for picked in pair]
            raise DataError(
                f"{names[0]} and {names[1]} differ, and have the same digest.",
                "Somebody made them so: look at both rows, and leave one out.",
            )
