"""Axes of charts: where their ticks are, and how far along an axis a value is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

TAIL = 20  # a bar this many times lower than the highest can hardly be seen on a linear axis
_NICE = (1, 2, 2.5, 5, 10)
_SMALLEST = 1e-3  # end of an axis of shares
_FOOT = 0.5  # where a logarithmic axis begins, so that a bar of 1 has a height


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the grid: how far along the axis it is, in percent, and its value."""

    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from nothing to ``end``.

    Attributes:
        log: logarithmic, for counts of 1 and more.
    """

    end: float
    log: bool = False

    def percent(self, value: float) -> float:
        """How far along the axis a value is, 0 to 100."""
        if not self.log:
            return round(100 * value / self.end, 3)
        if value < _FOOT:
            return 0.0
        return round(100 * math.log(value / _FOOT) / math.log(self.end / _FOOT), 3)

    def ticks(self, count: int = 4) -> tuple[Tick, ...]:
        """About so many round values, from the first line of the grid to the end."""
        if self.log:
            powers = range(round(math.log10(self.end)) + 1)
            values = [10.0**power for power in powers][:: 1 + len(powers) // 6]
        else:
            step = _step(self.end / count)
            values = [step * at for at in range(math.floor(self.end / step + 1e-9) + 1)]
        return tuple(Tick(self.percent(value), value) for value in values)


def _step(least: float) -> float:
    """The first round number that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return float(next(nice for nice in _NICE if nice * power >= least * (1 - 1e-9)) * power)


def of_counts(counts: Iterable[int]) -> Scale:
    """The axis of a histogram's counts: logarithmic where a linear one would hide its tail."""
    present = [count for count in counts if count]
    highest = max(present, default=1)
    if present and highest > TAIL * min(present):
        return Scale(10.0 ** math.ceil(math.log10(highest)), log=True)
    return up_to(highest, least=1.0)


def up_to(highest: float, least: float = 0.0) -> Scale:
    """A linear axis to the first line of its grid that is not below the highest value.

    Args:
        least: between two lines; counts have no fractions.
    """
    step = max(least, _step(max(highest, _SMALLEST) / 4))
    return Scale(step * max(1, math.ceil(highest / step - 1e-9)))
