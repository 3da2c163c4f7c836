"""What a row says that has several answers in a list: in which order they are, and which pairs that
makes."""

import re
from itertools import combinations, pairwise
from typing import Any

from expectations.witness.pairs import answer, margin, pair, rating
from expectations.witness.raw import UnreadError
from expectations.witness.said import Said, View

_LISTS = (
    *("ranked", "ranked_responses", "ranked_answers", "ranked_completions", "best_to_worst"),
    *("responses", "answers", "completions", "candidates", "outputs", "generations"),
)
_RATED = ("scores", "score", "ratings", "rating", "rewards", "reward", "overall_score")
_RANKS = ("ranks", "rank")


def _level(value: Any, scored: bool) -> float | None:
    """How good an answer with a score or a rank is."""
    found = rating(value)
    return None if found is None else found * (1 if scored else -1)


def _levels(view: View, answers: list[Any]) -> list[tuple[bool, list[float | None]]]:
    """How good the answers are by each number that they have: beside them, in them, or in a list
    of other objects that have a key of theirs; and whether it is a score."""
    found, objects = [], all(isinstance(one, dict) for one in answers)
    keys = [x for x in (*_RATED, *_RANKS) if x in view.named] or [*_RATED, *_RANKS]
    for key in keys:
        beside = view.get(key)
        if isinstance(beside, list) and len(beside) == len(answers):
            found.append((key, beside))
        elif beside is not None:
            raise UnreadError("numbers that are not one for each answer")
        if objects and any(one.get(key) is not None for one in answers):
            found.append((key, [one.get(key) for one in answers]))
    others = view.row.values() if objects and not found else ()
    for other in others:
        if not isinstance(other, list) or other is answers or len(other) != len(answers):
            continue
        if all(isinstance(one, dict) for one in other):
            found += _beside(answers, other, keys)
    every = [(key not in _RANKS, [_level(x, key not in _RANKS) for x in xs]) for key, xs in found]
    return [(scored, levels) for scored, levels in every if {*levels} != {None}]


def _beside(answers: list[Any], other: list[Any], keys: list[str]) -> list[tuple[str, list[Any]]]:
    """The numbers of objects, in the order of the answers that each is about."""
    for by in answers[0]:
        mine, theirs = ([str(one.get(by)) for one in each] for each in (answers, other))
        if len({*mine}) == len(mine) and sorted(mine) == sorted(theirs):
            of = [other[theirs.index(one)] for one in mine]
            return [(key, [x[key] for x in of]) for key in keys if all(key in x for x in of)]
    return []


def ranked(view: View) -> list[Said]:
    """Answers from the best to the worst, and the pairs that the variant makes of them; None
    stands for each that are as good, and for each answer that is in no pair."""
    name = next((n for n in _LISTS if isinstance(view.get(n), list)), "")
    answers = view.get(*_LISTS)
    if not isinstance(answers, list):
        raise UnreadError("ranked answers of another shape")
    made: list[Said]
    found = _levels(view, answers)
    texts = [answer(one, view.words) for one in answers]
    silent = {at for at, one in enumerate(texts) if not str(one or "").strip()}
    if "winner" in view.named:
        best = _named(view.get("winner"), view.named.get(name, "").split(","))
        others = [at for at in range(len(texts)) if at not in silent | {best}]
        made = [pair(view, texts[best], texts[at], margin(view)) for at in others]
        return made + [None] * (len(texts) - len(made) - 1)
    listed = name in _LISTS[:5] or view.variant.startswith("in-order")
    if not found and not listed:
        raise UnreadError("answers that nothing orders")
    if any(_are_numbers(x, len(answers)) for k, x in view.row.items() if k not in view.asked):
        raise UnreadError("numbers of answers under a name that is not known")
    scores = next((levels for scored, levels in found if scored), [None] * len(answers))
    levels = max((x for _, x in found), key=lambda x: len(x) - x.count(None), default=None)
    if levels is None or (listed and None in levels):
        levels = [-float(place) for place in range(len(answers))]
    rated = [i for i, level in enumerate(levels) if level is not None and i not in silent]
    order = sorted(rated, key=lambda i: -(levels[i] or 0.0))
    pairs = [*combinations(order, 2)] if view.variant.endswith("all") else [*pairwise(order)]
    extremes = view.variant.endswith("extremes")
    made = []
    for a, b in [(order[0], order[-1])] if extremes else pairs:
        high, low = scores[a], scores[b]
        if levels[a] == levels[b] or (high is not None and high == low):
            made.append(None)
            continue
        apart = None if high is None or low is None else high - low
        made.append(pair(view, texts[a], texts[b], margin(view, apart)))
    left = len(answers) - len(rated) + (len(order) - 2 if extremes else 0)
    return [*made, *[None] * left]


def _named(winner: Any, columns: list[str]) -> int:
    """The place of the column whose name has a word of a winner's that no other column has."""
    said, *each = ({*re.findall(r"[a-z]+|\d+", str(x).lower())} for x in (winner, *columns))
    own = [{*words}.difference(*(each[:at] + each[at + 1 :])) for at, words in enumerate(each)]
    places = [at for at, words in enumerate(own) if words and words <= said]
    if len(places) != 1 or isinstance(winner, float):
        raise UnreadError("a winner in other words")
    return places[0]


def _are_numbers(value: Any, count: int) -> bool:
    if not isinstance(value, list) or len(value) != count:
        return False
    return all(isinstance(one, int | float) for one in value)
