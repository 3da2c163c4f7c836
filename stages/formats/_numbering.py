"""Whether a file numbers the steps of its solutions from 0 or from 1."""

from __future__ import annotations

from collections.abc import Sequence

from stages.counted import counted
from stages.errors import UndecidedError

ZERO, ONE = "0-based", "1-based"


def settle(
    named: Sequence[tuple[Sequence[int], int]], what: str, none_said: bool = True
) -> tuple[str, str]:
    """The variant that rows show, and why.

    Args:
        named: by row, the numbers of its wrong steps, and how many steps it has.
        none_said: rows without a wrong step say so otherwise than by a 0: without such rows, a 0
            may be a file's way to say it.
        what: says these numbers, as words with a verb in the plural: ``the lists name``.

    Raises:
        UndecidedError: no row has a step 0 or one with the number of the last, or both occur, or
            a 0 may say that no step is wrong.
    """
    zero = sum(0 in numbers for numbers, _ in named)
    last = sum(steps in numbers for numbers, steps in named)
    if zero and not none_said and not last:
        raise UndecidedError(
            f"{what} a 0 in {counted(zero, 'row')}, which may be the first step or say that no "
            "step is wrong (no row has -1 or null), so they may count from 0 or from 1",
            (ZERO, ONE),
        )
    if zero and not last:
        return ZERO, f"it counts from 0, as step 0 is listed in {counted(zero, 'row')}"
    if last and not zero:
        listed = f"the last step is listed by its number in {counted(last, 'row')}"
        return ONE, f"it counts from 1, as {listed}"
    seen = "both a step 0 and a step past the end" if zero else "neither a step 0 nor a last step"
    raise UndecidedError(f"{what} {seen}, so they may count from 0 or from 1", (ZERO, ONE))
