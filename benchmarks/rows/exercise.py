"""What all generated texts consist of: a question, steps to its answer, and the answer."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Exercise:
    """A question and its solution.

    Attributes:
        wrong: a step that could stand in the place of the last one, with a mistake in it.
    """

    question: str
    steps: tuple[str, ...]
    answer: str
    wrong: str


Text: TypeAlias = Callable[[random.Random], Exercise]


def pick(draw: random.Random, words: Sequence[str]) -> str:
    """A word, the first ones more often: one of rank r about as often as 1 / r, as in language."""
    return words[min(int(len(words) ** draw.random()) - 1, len(words) - 1)]
