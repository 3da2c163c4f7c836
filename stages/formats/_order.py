"""Which of several answers is better: by a score or a rank of each, or as they are listed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stages.contract import Row
from stages.errors import RowError
from stages.formats._asked import meant, open_question
from stages.formats._pairs import number
from stages.rows.unread import ignore
from stages.rows.watched import peek

_SCORES = ("scores", "score", "ratings", "rating", "rewards", "reward", "overall_score")
_RANKS = ("ranks", "rank")
NUMBERS = (*_SCORES, *_RANKS)


@dataclass(frozen=True)
class Numbers:
    """One number per answer.

    Attributes:
        name: where they stand: ``scores``, or ``rank`` within each answer.
        path: the same as ``--ignore`` takes it.
        values: None where an answer has none.
        scored: they are scores, whose difference is a margin; ranks otherwise, the best lowest.
    """

    name: str
    path: str
    values: list[float | None]
    scored: bool

    def level(self, place: int) -> float | None:
        """How good an answer is: higher is better."""
        value = self.values[place]
        return value if value is None or self.scored else -value

    @property
    def word(self) -> str:
        """What one of them is."""
        return "score" if self.scored else "rank"


@dataclass(frozen=True)
class RankedAnswer:
    """One answer of a row.

    Attributes:
        where: its place, ``answers[2]``.
        said: the answer as the row has it.
        level: higher is better; ``word``: what says so, empty where only the list does.
        score: the number that margins are made of, found under ``path``.
    """

    where: str
    said: Any
    level: float
    word: str
    score: float | None
    path: str

    def ties_with(self, other: RankedAnswer) -> str:
        """The number that both have, in words; empty where one is better."""
        if self.word and self.level == other.level:
            return f"{self.word} {-self.level if self.word == 'rank' else self.level:g}"
        same = self.score is not None and self.score == other.score
        return f"score {self.score:g}" if same else ""

    def margin_over(self, worse: RankedAnswer) -> tuple[str, float] | None:
        """By how much its score is higher, and where that stands; None without two scores."""
        if self.score is None or worse.score is None:
            return None
        return f"the difference in {self.path}", self.score - worse.score


def of_row(row: Row, name: str, answers: list[Any], columns: Mapping[str, str]) -> list[Numbers]:
    """Every number that a row has for each of its answers: beside them, or within each.

    Raises:
        RowError: ``bad_margin``: a value is not a number, or there is not one for each answer.
    """
    numbers: list[Numbers] = []
    objects = all(isinstance(one, dict) for one in answers)
    for key in meant(NUMBERS, columns):
        scored = key in _SCORES
        inside = objects and any(peek(one, key) is not None for one in answers)
        values = peek(row, key)
        if isinstance(values, list) and len(values) == len(answers):
            numbers.append(
                Numbers(
                    key, path=key, values=[_number(value, key) for value in row[key]], scored=scored
                )
            )
        elif values is not None:
            detail = f"column {key!r} does not hold one number per answer"
            if inside:
                raise open_question(detail, f"Leave it out with --ignore {key}", "bad_margin")
            raise RowError("bad_margin", detail)
        if inside:
            path = f"{name}[].{key}"
            numbers.append(
                Numbers(
                    key,
                    path=path,
                    values=[_number(one.get(key), path) for one in answers],
                    scored=scored,
                )
            )
    return [one for one in numbers if any(value is not None for value in one.values)]


def _number(value: Any, where: str) -> float | None:
    return None if value is None else number(value, where)


def _disagree(one: Numbers, other: Numbers) -> bool:
    """Whether two columns order some answers differently, or two scores differ."""
    both = [
        place
        for place in range(len(one.values))
        if one.values[place] is not None and other.values[place] is not None
    ]
    if one.scored == other.scored:
        return any(one.values[place] != other.values[place] for place in both)
    couples = itertools.combinations(both, 2)
    return any(_sign(one, a, b) != _sign(other, a, b) for a, b in couples)


def _sign(one: Numbers, a: int, b: int) -> int:
    x, y = one.level(a) or 0.0, one.level(b) or 0.0
    return (x > y) - (x < y)


def _require_one_order(name: str, numbers: Sequence[Numbers], listed: str) -> None:
    """Everything that orders the answers of a row says the same.

    Raises:
        AskError: two columns do not, or the list itself.
    """
    for one, other in itertools.combinations(numbers, 2):
        if _disagree(one, other):
            what = f"{one.path} and {other.path} disagree about the same answers"
            ways = f"{ignore(other.path)} or {ignore(one.path)}"
            raise open_question(what, f"Say which with {ways}", "two_orders")
    for one in numbers if listed else ():
        levels = [
            level for place in range(len(one.values)) if (level := one.level(place)) is not None
        ]
        if levels != sorted(levels, reverse=True):
            what = f"{name} is sorted from best to worst, but {one.path} says otherwise"
            ways = f"{listed} or {ignore(one.path)}"
            raise open_question(what, f"Say which with {ways}", "two_orders")


def in_order(
    name: str, answers: list[Any], numbers: Sequence[Numbers], listed: str
) -> tuple[list[RankedAnswer], list[str]]:
    """The answers from best to worst, and where those stand that nothing orders.

    Args:
        name: of the column with the answers.
        listed: the option that takes this back, where they stand from best to worst; else empty.

    Raises:
        RowError: ``unrated_answer``: fewer than two answers can be ordered; ``two_orders``.
    """
    _require_one_order(name, numbers, listed)
    scores = next((one for one in numbers if one.scored), None)
    # The column with the most numbers orders; of two with as many, the scores do.
    best = max(numbers, key=lambda one: sum(v is not None for v in one.values), default=None)
    if listed and (best is None or None in best.values):
        best = None  # the list orders all of them, numbers only some
    elif best is None:
        raise RowError(
            "unrated_answer", f"no answer of {name} has a number, and nothing gives their order"
        )
    rated: list[RankedAnswer] = []
    unrated: list[str] = []
    for place, said in enumerate(answers):
        where = f"{name}[{place}]"
        level = best.level(place) if best is not None else -float(place)
        if level is None:
            unrated.append(where)
            continue
        score = scores.values[place] if scores is not None else None
        word, path = best.word if best is not None else "", scores.path if scores else ""
        rated.append(RankedAnswer(where, said, level=level, word=word, score=score, path=path))
    if len(rated) < 2:
        raise RowError("unrated_answer", f"fewer than two answers of {name} have a number")
    return sorted(rated, key=lambda one: -one.level), unrated
