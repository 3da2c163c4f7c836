"""``chosen`` and ``rejected`` as lists of several answers each.

``answer_lists/first`` pairs the first of each, and counts the others as left out;
``answer_lists/all`` pairs every chosen answer with every rejected one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Refused, Row
from stages.counted import counted
from stages.errors import RowError, UndecidedError
from stages.format import Format
from stages.formats import _pairs, _turns
from stages.formats._asked import Asking
from stages.kinds import PAIR

_SIDES = ("chosen", "rejected")
VARIANTS = ("first", "all")


def is_several(value: Any) -> bool:
    """Whether a value is a list of answers, each a text or turns; one answer's turns are none."""
    if not isinstance(value, list) or not value:
        return False
    if all(isinstance(one, str) for one in value):
        return True
    return all(isinstance(one, list) and _turns.are_turns(one) for one in value)


def _answers(value: Any) -> list[Any]:
    return value if is_several(value) else [value]


def _left_out(side: str, answers: list[Any]) -> list[Refused]:
    """The answers behind the first."""
    return [
        Refused("not_the_first", f"{side} answer {number} of {len(answers)}")
        for number in range(2, len(answers) + 1)
    ]


class _AnswerLists(Asking):
    """The format; ``variant`` says which answers make pairs where there are several."""

    name = "answer_lists"
    kinds = (PAIR,)
    columns: Columns = {"answers": _SIDES, **_pairs.BESIDE}
    prompts = _pairs.PROMPTS
    fans_out = True

    def __init__(self, variant: str = "") -> None:
        self._variant = variant

    @property
    def variants(self) -> Mapping[str, Format]:
        return {name: _AnswerLists(name) for name in VARIANTS}

    def matches(self, row: Row) -> str | None:
        sides = [dict.get(row, name) for name in _SIDES]
        if None in sides or not any(map(is_several, sides)):
            return None
        return "lists of answers in chosen and rejected"

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        several = sum(any(len(_answers(row.get(name))) > 1 for name in _SIDES) for row in rows)
        if not several:
            return "", "one answer in each"
        what = (
            f"several chosen or rejected answers in {several:,} of "
            f"{counted(len(rows), 'row')}: the first of "
            "each may be the pair, or all of one with all of the other"
        )
        raise UndecidedError(what, VARIANTS)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        chosen, rejected = (_answers(row.get(name)) for name in _SIDES)
        if chosen in ([], [[]]) or rejected in ([], [[]]):
            raise RowError("empty_answer", "a list of answers is empty")
        if not self._variant and len(chosen) * len(rejected) > 1:
            detail = f"{len(chosen)} chosen and {len(rejected)} rejected answers; see --format "
            raise RowError("several_answers", detail + " or ".join(self.variants))
        if self._variant == "first":
            pair = _pairs.pair(row, chosen[0], rejected[0], options)
            return [pair, *_left_out("chosen", chosen), *_left_out("rejected", rejected)]
        _pairs.require_one_margin(row, len(chosen) * len(rejected), options.columns)
        pairs = itertools.product(chosen, rejected)
        return [_pairs.pair(row, better, worse, options) for better, worse in pairs]


FORMAT = _AnswerLists()
