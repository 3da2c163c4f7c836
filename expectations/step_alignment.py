"""Check that input and label texts of a PRM row have equally many tokens.

Older trainers encode a row twice: with the step token after every step, and with the token of each
rating in its place. They assert that both have the same number of tokens, since labels are read by
position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from stages.counted import counted
from stages.errors import ReadingError
from stages.profile import StepTokens


def require_aligned(
    text: str,
    ratings: Sequence[float | None],
    tokens: StepTokens,
    count: Callable[[str], int],
) -> None:
    """Check that both texts of a row have equally many tokens.

    Args:
        text: of the row, with a step token after each step.
        ratings: one for each step; where it is None, the step token stays in both texts.
        count: gives the number of tokens of a text.

    Raises:
        ReadingError: they have not, or there are not as many step tokens as ratings.
    """
    spelled = [
        tokens.step if one is None else tokens.good if one >= 0.5 else tokens.bad for one in ratings
    ]
    between = text.split(tokens.step)
    if len(between) != len(spelled) + 1:
        raise ReadingError(
            f"{counted(len(between) - 1, 'step token')} for {counted(len(spelled), 'rating')}."
        )
    rated = "".join(a + b for a, b in zip_longest(between, spelled, fillvalue=""))
    inputs, labels = count(text), count(rated)
    if inputs != labels:
        raise ReadingError(
            f"{inputs} tokens with step tokens, {labels} with the ratings' tokens in their place."
        )
