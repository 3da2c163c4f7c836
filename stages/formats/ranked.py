"""Several answers to one prompt, from best to worst or with a score or a rank each.

A row gives a pair for each two neighbours, with ``ranked/all`` for each two answers, with
``ranked/extremes`` for the best and the worst. Two that are equally good are refused as a tie, and
an answer without a number among others is refused by name. Where nothing orders the answers,
``ranked/in-order`` reads them from best to worst.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Refused, Row
from stages.errors import RowError, UndecidedError
from stages.format import Format
from stages.formats import _pairs, _turns, indexed_pair
from stages.formats._answers import text_of
from stages.formats._asked import Asking, one_of
from stages.formats._order import NUMBERS, RankedAnswer, in_order, of_row
from stages.kinds import PAIR
from stages.rows.watched import peek

_ORDERED = ("ranked", "ranked_responses", "ranked_answers", "ranked_completions", "best_to_worst")
_LISTS = ("responses", "answers", "completions", "candidates", "outputs", "generations")
_Couple = tuple[RankedAnswer, RankedAnswer]


def _is_list(row: Row, name: str) -> bool:
    value = peek(row, name)
    return isinstance(value, list) and len(value) > 1 and not _turns.is_turns(value, "role")


class _Ranked(Asking):
    """The format.

    Args:
        which: answers make pairs: neighbours (""), all, or the extremes.
        listed: answers that nothing orders stand from best to worst.
    """

    name = "ranked"
    kinds = (PAIR,)
    columns: Columns = {"answers": (*_ORDERED, *_LISTS), "numbers": NUMBERS, **_pairs.BESIDE}
    prompts = _pairs.PROMPTS
    fans_out = True

    def __init__(self, which: str = "", listed: bool = False) -> None:
        self._which, self._listed = which, listed

    @property
    def variants(self) -> Mapping[str, Format]:
        return {
            "adjacent": _Ranked(),
            "all": _Ranked("all"),
            "extremes": _Ranked("extremes"),
            "in-order": _Ranked(listed=True),
            "in-order-all": _Ranked("all", listed=True),
            "in-order-extremes": _Ranked("extremes", listed=True),
        }

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        if rows and not any(self._is_ordered(row) for row in rows):
            what = (
                "nothing says that the answers are in order, from best to worst; if they are, "
                "ranked/in-order reads them so"
            )
            raise UndecidedError(what, ("in-order",))
        others = "ranked/all makes them of all, ranked/extremes of the best and the worst"
        return "", f"a pair for each two neighbours; {others}"

    def _is_ordered(self, row: Row) -> bool:
        """Whether the row says in which order its answers stand."""
        names = [name for name in self.columns["answers"] if _is_list(row, name)]
        if not names or names[0] in _ORDERED:
            return bool(names)
        answers = peek(row, names[0])
        inner = [one for one in answers if isinstance(one, dict)]
        return any(peek(one, name) is not None for one in [row, *inner] for name in NUMBERS)

    def matches(self, row: Row) -> str | None:
        if "chosen" in row or (indexed_pair.FORMAT.matches(row) is not None):
            return None
        name = next((name for name in (*_ORDERED, *_LISTS) if _is_list(row, name)), None)
        value = peek(row, name) if name else []
        if not name or not all(isinstance(one, (str, dict, list)) for one in value):
            return None
        if "labels" in row:
            return None
        inner = [one for one in value if isinstance(one, dict)]
        how = next((n for n in NUMBERS if n in row or any(n in one for one in inner)), None)
        return f"answers in {name}" + (f" with {how}" if how else "")

    def _couples(self, ordered: list[RankedAnswer]) -> list[_Couple]:
        if self._which == "extremes":
            return [(ordered[0], ordered[-1])]
        couples = itertools.combinations(ordered, 2) if self._which else itertools.pairwise(ordered)
        return list(couples)

    def _left_out(self, ordered: list[RankedAnswer], unrated: list[str]) -> Iterable[Refused]:
        """The answers that are in no pair."""
        for where in unrated:
            yield Refused("unrated_answer", f"{where} has no number, but other answers have one")
        if self._which == "extremes":
            for one in ordered[1:-1]:
                yield Refused("not_an_extreme", f"{one.where} is neither the best nor the worst")

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        columns = options.columns
        name = one_of(row, (*_ORDERED, *_LISTS), columns, what="list of answers", holds=_is_list)
        if name is None:
            raise RowError("bad_column", "there is no list of two answers or more")
        given = row[name]
        numbers = of_row(row, name, given, columns)
        listed = f"--map responses={name}" if name in _ORDERED else ""
        listed = listed or ("--format ranked" if self._listed else "")
        ordered, unrated = in_order(name, given, numbers, listed)
        couples = self._couples(ordered)
        _pairs.require_one_margin(row, len(couples), columns)
        texts = {one.where: text_of(one.said, one.where) for one in ordered}
        examples: list[Example] = []
        for better, worse in couples:
            if tie := better.ties_with(worse):
                examples.append(Refused("tie", f"two answers have the same {tie}"))
                continue
            sides = texts[better.where], texts[worse.where]
            examples.append(_pairs.pair(row, *sides, options, own=better.margin_over(worse)))
        if all(isinstance(one, Refused) for one in examples):
            raise RowError("tie", "all answers are equally good")
        return [*examples, *self._left_out(ordered, unrated)]


FORMAT = _Ranked()
