"""Several answers to one prompt, from best to worst or with a score or a rank each.

A row gives a pair for each two neighbours, with ``ranked/all`` for each two answers, with
``ranked/extremes`` for the best and the worst. Two that are equally good are refused as a tie.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stages.contract import Columns, Example, Format, FormatOptions, Pair, Refused, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns, indexed_pair

_ORDERED = ("ranked", "ranked_responses", "ranked_answers", "ranked_completions", "best_to_worst")
_LISTS = ("responses", "answers", "completions", "candidates", "outputs", "generations")
_TEXTS = ("text", "content", "response", "answer", "output", "completion")
_SCORES = ("scores", "score", "ratings", "rating", "rewards", "reward", "overall_score")
_RANKS = ("ranks", "rank")
_COLUMNS = {
    "answers": (*_ORDERED, *_LISTS),
    "numbers": (*_SCORES, *_RANKS),
    **_pairs.BESIDE,
}
_Rated = tuple[Any, float]  # an answer, and a number that is higher the better it is


def _value(row: Row, answers: list[Any], names: tuple[str, ...]) -> list[float] | None:
    """One number per answer: from a list beside the answers, or from within each of them."""
    name = _turns.first_of(row, names)
    values = row[name] if name else None
    if values is None and all(isinstance(one, dict) for one in answers):
        name = _turns.first_of(answers[0], names)
        values = [one.get(name) for one in answers] if name else None
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != len(answers):
        raise RowError("bad_margin", f"column {name!r} does not hold one number per answer")
    return [_pairs.number(value, str(name)) for value in values]


def _text(answer: Any) -> Any:
    """The answer itself; a turn or turns stay as they are."""
    if isinstance(answer, dict) and not {"role", "from"} & set(answer):
        name = _turns.first_of(answer, _TEXTS)
        return answer[name] if name else answer
    return answer


@dataclass
class _Ranked:
    """The format; ``which`` answers make pairs: neighbours (""), all, or the extremes."""

    which: str = ""
    name: str = "ranked"
    tasks: tuple[str, ...] = ("rm",)
    fans_out: bool = True
    columns: Columns = field(default_factory=lambda: _COLUMNS)
    prompts: tuple[str, ...] = _pairs.PROMPTS

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"adjacent": _Ranked(), "all": _Ranked("all"), "extremes": _Ranked("extremes")}

    def settle(self, rows: Sequence[Row]) -> tuple[str, str]:
        others = "ranked/all makes them of all, ranked/extremes of the best and the worst"
        return "", f"a pair for each two neighbours; {others}"

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or (indexed_pair.FORMAT.matches(row) is not None):
            return None
        name = _turns.first_of(row, (*_ORDERED, *_LISTS))
        value = row[name] if name else None
        if not isinstance(value, list) or len(value) < 2 or _turns.is_turns(value, "role"):
            return None
        if not all(isinstance(one, (str, dict, list)) for one in value) or "labels" in row:
            return None
        inner = value[0] if isinstance(value[0], dict) else {}
        how = next((n for n in (*_SCORES, *_RANKS) if n in row or n in inner), None)
        return f"answers in {name}" + (f" with {how}" if how else "")

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        names = (*_ORDERED, *_SCORES, *_RANKS)
        for row in rows:
            lists: list[Any] = next((row[n] for n in _LISTS if isinstance(row.get(n), list)), [])
            inner = lists[0] if lists and isinstance(lists[0], dict) else {}
            if not any(name in row or name in inner for name in names):
                what = "nothing says that the answers stand in order, from best to worst"
                return what, "If they do, add --format ranked"
        return None

    def _ordered(self, row: Row) -> tuple[list[_Rated], bool]:
        """Answers with a number that is higher the better they are; whether those are scores."""
        name = _turns.first_of(row, (*_ORDERED, *_LISTS))
        answers = row[name] if name else None
        if not isinstance(answers, list) or len(answers) < 2:
            raise RowError("bad_column", "there is no list of two answers or more")
        scores = _value(row, answers, _SCORES)
        scored = scores is not None
        if scores is None:
            ranks = _value(row, answers, _RANKS) or [float(i) for i in range(len(answers))]
            scores = [-rank for rank in ranks]
        order = sorted(range(len(answers)), key=lambda i: -scores[i])
        return [(_text(answers[i]), scores[i]) for i in order], scored

    def _couples(self, ordered: list[_Rated]) -> Iterable[tuple[_Rated, _Rated]]:
        if self.which == "extremes":
            return [(ordered[0], ordered[-1])]
        return itertools.combinations(ordered, 2) if self.which else itertools.pairwise(ordered)

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        ordered, scored = self._ordered(row)
        found: list[Example] = []
        for (better, high), (worse, low) in self._couples(ordered):
            if high == low:
                how = f"score {high:g}" if scored else f"rank {-high:g}"
                found.append(Refused("tie", f"two answers have the same {how}"))
                continue
            pair: Pair = _pairs.pair(row, better, worse, options)
            found.append(replace(pair, margin=high - low) if scored else pair)
        if all(isinstance(one, Refused) for one in found):
            raise RowError("tie", "all answers are equally good")
        return found


FORMAT = _Ranked()
