"""How much was done: what workers count, and how they tell it while they are at a piece of work.

A worker counts a batch, never a row, and what it tells is all of its piece so far: what is told
late, twice or not at all makes no total wrong.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, TypeVar

EVERY = 0.2  # seconds between two times that one process tells

_S = TypeVar("_S", bound="Sums")


def _sum(values: list[Any]) -> Any:
    """What there is of some values, added up; what a counter has counted as zero stays in it."""
    there = [value for value in values if value is not None]
    if there and isinstance(there[0], Counter):
        total: Counter[Any] = Counter()
        for one in there:
            total.update(one)
        return total
    return reduce(operator.add, there) if there else None


@dataclass(frozen=True, slots=True)
class Sums:
    """A record of counts; two of a kind are added field by field."""

    def __add__(self: _S, other: _S) -> _S:
        return type(self)(
            **{
                one.name: _sum([getattr(r, one.name) for r in (self, other)])
                for one in fields(self)
            }
        )


@dataclass(frozen=True, slots=True)
class Amount(Sums):
    """What came of some work.

    Attributes:
        rows: that were read, or written.
        tokens: of the examples that were made or stored, without padding.
        refused: sequences of rows that were refused.
        size: of the share of the work that this was, in the unit in which its whole is given:
            bytes of input, or pieces.
    """

    rows: int = 0
    tokens: int = 0
    refused: int = 0
    size: int = 0

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.rows - other.rows,
            self.tokens - other.tokens,
            self.refused - other.refused,
            self.size - other.size,
        )


NOTHING = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """All of them together."""
    return sum(amounts, NOTHING)


Listener = Callable[[Amount], None]
_listeners: list[Listener] = []  # one while a piece is made that somebody follows
_told = [0.0]  # when the last was told, by the monotonic clock


def tell(amount: Amount) -> None:
    """Say how far the piece is that this process makes; some are left out, to keep it cheap."""
    if _listeners and time.monotonic() - _told[0] >= EVERY:
        _told[0] = time.monotonic()
        _listeners[-1](amount)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Until the block ends, what is told goes there."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()
