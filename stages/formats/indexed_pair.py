"""Two answers and which is the better one: its index, letter or column's name, or ``A>B``.

An index alone does not say whether it counts from 0 or from 1; the rows of a file together may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError, UndecidedError
from stages.format import Format
from stages.formats import _pairs
from stages.formats._answers import require_no_third, text_of
from stages.formats._asked import Asking, Question, meant, one_of, open_question, says, two_of
from stages.kinds import PAIR
from stages.rows.watched import peek

_STEMS = (
    "output",
    "response",
    "answer",
    "completion",
    "conversation",
    "candidate",
    "summary",
    "generation",
    "text",
    "human_ref",
)
_ENDS = (("1", "2"), ("0", "1"), ("a", "b"), ("A", "B"))
_LISTS = ("responses", "answers", "completions", "outputs", "candidates", "summaries")
CHOICES = (
    "label",
    "labels",
    "better",
    "better_index",
    "better_answer",
    "better_response",
    "better_response_id",
    "safer_response_id",
    "preferred",
    "preference",
    "preferred_index",
    "winner",
    "choice",
    "best",
)
# Columns with a verdict in letters; under these names other texts are common, such as its reasons.
_VERDICTS = ("verdict", "judgment", "judgement", "judge_verdict", "comparison", "decision")
_LETTERS = {"a": 0, "b": 1}
_PAIRS = tuple(
    (f"{stem}{joint}{left}", f"{stem}{joint}{right}")
    for stem in _STEMS
    for left, right in _ENDS
    for joint in ("_", "")
)
_COLUMNS = {
    "answers": (
        *(
            name
            for stem in _STEMS
            for pair in _ENDS
            for end in pair
            for name in (f"{stem}_{end}", f"{stem}{end}")
        ),
        *_LISTS,
    ),
    "choice": CHOICES,
    **_pairs.BESIDE,
}
_NOUNS = ("model", "response", "answer", "output", "assistant", "option", "completion")
_SIDE = rf"(?:{'|'.join(_NOUNS)})?_?([ab])"
# A>B, model_a>>model_b, B~A; brackets and blanks are taken off before
_COMPARED = re.compile(rf"{_SIDE}(>+|<+|=+|~|≈){_SIDE}")
# What the better answer's index is, by variant: where the first is better, and where the second.
VARIANTS = {"0-based": (0, 1), "1-based": (1, 2), "1-is-first": (1, 0)}


_UNNAMED: tuple[str, ...] = ()  # the columns of answers in a list


def _sides(row: Row) -> tuple[str, str] | None:
    """The two columns that hold the answers."""
    sides = (names for names in _PAIRS if all(peek(row, name) is not None for name in names))
    return next(sides, None)


def _ends(row: Row) -> tuple[str, ...]:
    """What the names of the answers' columns end in; nothing where several could be meant."""
    there = [names for names in _PAIRS if all(says(row, name) for name in names)]
    ends = {(left[-1], right[-1]) for left, right in there}
    if not ends:
        return "0", "1"  # a list
    return ends.pop() if len(ends) == 1 else _UNNAMED


def _is_two(row: Row, name: str) -> bool:
    value = peek(row, name)
    return isinstance(value, list) and len(value) == 2


def _list(row: Row) -> str | None:
    return next((name for name in _LISTS if _is_two(row, name)), None)


def _answers(row: Row, columns: Mapping[str, str]) -> tuple[list[Any], tuple[str, ...]]:
    """The two answers of a row, and the columns that they stand in, empty for a list.

    Raises:
        RowError: there are none; or two columns could each hold one, or there is a third.
    """
    names = two_of(row, _PAIRS, columns) or _sides(row)
    listed = one_of(row, _LISTS, columns, what="list of answers", holds=_is_two)
    if names is not None and listed is not None and listed not in columns:
        if [peek(row, name) for name in names] != peek(row, listed):
            ways = f"--ignore {listed} or {' '.join(f'--ignore {name}' for name in names)}"
            what = f"{' and '.join(names)}, and {listed}, could each be the answers"
            raise open_question(what, f"Say which with {ways}")
        _ = row[listed]  # read: the two columns say it
    if names is not None and listed not in columns:
        require_no_third(row, names, columns)
        return [text_of(row[name], name) for name in names], names
    if listed is None:
        raise RowError("bad_column", "there are no two answers to choose from")
    return [text_of(one, f"{listed}[{place}]") for place, one in enumerate(row[listed])], _UNNAMED


def _compared(value: Any) -> int | None:
    """The better answer of ``A>B``, ``[[B>>A]]`` or ``A < B``; -1 for ``A=B``; else None."""
    plain = "".join(value.split()).strip("[]").lower() if isinstance(value, str) else ""
    compared = _COMPARED.fullmatch(plain)
    if compared is None or compared[1] == compared[3]:
        return None
    if compared[2][0] not in "<>":
        return -1
    return _LETTERS[compared[1] if compared[2][0] == ">" else compared[3]]


def _by_name(value: str, names: tuple[str, ...]) -> int | None:
    """The answer that a letter, a column's name or a comparison means."""
    plain = value.strip()
    if plain in names:
        return names.index(plain)
    compared = _compared(plain)
    if compared is not None:
        return None if compared < 0 else compared
    ending = plain.removeprefix("[[").removesuffix("]]").strip().lower()
    for stem in _NOUNS:
        ending = ending.removeprefix(stem).lstrip(" _")
    return _LETTERS.get(ending)


def _is_verdict(value: Any, row: Row) -> bool:
    """Whether a value of a column that may hold any text names the better answer."""
    return isinstance(value, str) and (
        _is_tie(value) or _by_name(value, _sides(row) or _UNNAMED) is not None
    )


def _index(value: Any) -> int | None:
    """A value as the number that it is or spells."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, (bool, int)):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _is_tie(value: Any) -> bool:
    if isinstance(value, str):  # [[C]] is a tie where judges answer [[A]], [[B]] or [[C]]
        plain = value.strip().lower()
        return plain.strip("[]") in _pairs.TIES or plain == "[[c]]" or _compared(value) == -1
    return isinstance(value, float) and value == 0.5


def _speaks(row: Row, name: str) -> bool:
    """Whether a column of a verdict says something of the answers: any text may stand there."""
    value = peek(row, name)
    return says(row, name) and (name in CHOICES or _is_verdict(value, row))


def _names_one(value: Any, row: Row) -> bool:
    """Whether a value can say which answer is the better one, in one way or another."""
    return _is_tie(value) or _is_verdict(value, row) or _index(value) in (0, 1, 2)


class _IndexedPair(Asking):
    """The format; ``variant`` says what an index means."""

    name = "indexed_pair"
    kinds = (PAIR,)
    columns: Columns = _COLUMNS
    prompts = _pairs.PROMPTS

    def __init__(self, variant: str = "") -> None:
        self._variant = variant

    @property
    def variants(self) -> Mapping[str, Format]:
        return {name: _IndexedPair(name) for name in VARIANTS}

    def matches(self, row: Row) -> str | None:
        there = [name for name in CHOICES if name in row] or [
            name for name in _VERDICTS if _speaks(row, name)
        ]
        values = [peek(row, name) for name in (*CHOICES, *_VERDICTS) if _speaks(row, name)]
        if not there or "chosen" in row or not (names := _sides(row) or _list(row)):
            return None
        if values and not any(_names_one(value, row) for value in values):
            return None
        if isinstance(names, tuple):
            return f"{names[0]}, {names[1]} and {there[0]}"
        return f"a list of two answers and {there[0]}"

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        names = [
            name
            for name in meant((*CHOICES, *_VERDICTS), columns)
            if any(_speaks(row, name) for row in rows)
        ]
        if len(names) < 2:
            return super().doubt(rows, columns)
        flags = " or ".join(f"--map label={name}" for name in names)
        return f"{' and '.join(names)} could each name the better answer", f"Say which with {flags}"

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        # More than one column only where --map has settled which is read; each must say the same.
        shown: dict[str, str] = {}
        for name in (*CHOICES, *_VERDICTS):
            variant, why = self._settled([row for row in rows if _speaks(row, name)], name)
            if variant:
                shown.setdefault(variant, why)
        if len(shown) > 1:
            raise UndecidedError(f"columns differ: {'; '.join(shown.values())}", tuple(shown))
        return next(iter(shown.items()), ("", "the better answer is named"))

    def _settled(self, rows: Sequence[Row], name: str) -> tuple[str, str]:
        """What the values of one column show."""
        open_ones = [
            (row, value)
            for row in rows
            if not _is_tie(value := peek(row, name)) and not _is_verdict(value, row)
        ]
        # What is not an index at all is refused row by row, and is no reason to read it as one.
        seen = {index for _, value in open_ones if (index := _index(value)) in (0, 1, 2)}
        if not seen:
            return "", ""
        flags = any(isinstance(value, bool) for _, value in open_ones)
        ends = _ends(open_ones[0][0])
        words = f"the better answer's index is {' or '.join(sorted(map(str, seen)))}"
        if flags:
            words = "the choice is true or false"
        if not flags and seen <= {1, 2} and (2 in seen or ends == ("1", "2")):
            return "1-based", f"{words}: it counts from 1"
        if not flags and seen <= {0, 1} and ends == ("0", "1"):
            return "0-based", f"{words}: it counts from 0"
        able = tuple(
            name
            for name, order in VARIANTS.items()
            if (seen <= set(order) or len(seen) > 2) and not (flags and name == "1-based")
        )
        ways = "an index from 0, an index from 1," if "1-based" in able else "an index from 0"
        what = f"{words}: that may be {ways} or a yes or no for the first answer"
        raise UndecidedError(what, able)

    def _better(self, value: Any, names: tuple[str, ...]) -> int:
        """0 or 1: which answer is the better one."""
        if _is_tie(value):
            raise RowError("tie", f"the answers are equally good ({value!r})")
        named = _by_name(value, names) if isinstance(value, str) else None
        if named is not None:
            return named
        index = _index(value)
        order = VARIANTS.get(self._variant, ())
        if index is not None and index in order:
            return order.index(index)
        if not order and index in (0, 1, 2):
            ways = " or ".join(f"--format indexed_pair/{name}" for name in VARIANTS)
            what = f"{value!r} may be an index from 0, an index from 1, or a yes or no"
            raise RowError("bad_label", f"{what}; say which with {ways}")
        known = f"{order[0]} and {order[1]}, or A and B" if order else "0 and 1, or A and B"
        raise RowError("bad_label", f"{value!r} names neither answer; they are {known}")

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        answers, sides = _answers(row, options.columns)
        names = meant((*CHOICES, *_VERDICTS), options.columns)
        # Where no column names an answer, the first that says anything is refused for its value.
        said = [name for name in names if _speaks(row, name)]
        said = said or [name for name in names if says(row, name)][:1]
        if not said:
            raise RowError("bad_label", "nothing says which answer is the better one")
        places = {self._better(row[name], sides) for name in said}
        if len(places) > 1:
            what = f"{' and '.join(said)} do not name the same answer"
            ways = " or ".join(f"--map label={name}" for name in said)
            raise open_question(what, f"Say which with {ways}", "bad_label")
        better = places.pop()
        return [_pairs.pair(row, answers[better], answers[1 - better], options)]


FORMAT = _IndexedPair()
