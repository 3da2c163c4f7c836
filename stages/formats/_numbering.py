"""Whether a file numbers the steps of its solutions from 0 or from 1."""

from __future__ import annotations

from collections.abc import Sequence

from stages.counted import counted
from stages.errors import UndecidedError

ZERO, ONE = "0-based", "1-based"


def settle(named: Sequence[tuple[Sequence[int], int]], what: str) -> tuple[str, str]:
    """The variant that rows show, and why.

    Args:
        named: by row, the numbers of its wrong steps, and how many steps it has.
        what: says these numbers, as words with a verb in the plural: ``the lists name``.

    Raises:
        UndecidedError: no row has a step 0 or one with the number of the last, or both occur.
    """
    zero = sum(0 in numbers for numbers, _ in named)
    last = sum(steps in numbers for numbers, steps in named)
    if zero and not last:
        return ZERO, f"it counts from 0, as step 0 is listed in {counted(zero, 'row')}"
    if last and not zero:
        listed = f"the last step is listed by its number in {counted(last, 'row')}"
        return ONE, f"it counts from 1, as {listed}"
    seen = "both a step 0 and a step past the end" if zero else "neither a step 0 nor a last step"
    raise UndecidedError(f"{what} {seen}, so they may count from 0 or from 1", (ZERO, ONE))
