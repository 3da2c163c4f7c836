"""Two answers and which is the better one: its index, letter or column's name, or ``A>B``.

An index alone does not say whether it counts from 0 or from 1; the rows of a file together may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stages.contract import Columns, Example, Format, FormatOptions, Row
from stages.errors import RowError, UndecidedError
from stages.formats import _pairs, _turns
from stages.watched import peek

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
_COMPARED = re.compile(rf"{_SIDE}(>+|<+|=+|~|≈){_SIDE}")
# What the better answer's index is, by variant: where the first is better, and where the second.
VARIANTS = {"0-based": (0, 1), "1-based": (1, 2), "1-is-first": (1, 0)}


def _sides(row: Row) -> tuple[str, str] | None:
    """The two columns that hold the answers."""
    for stem in _STEMS:
        for left, right in _ENDS:
            for names in (
                (f"{stem}_{left}", f"{stem}_{right}"),
                (f"{stem}{left}", f"{stem}{right}"),
            ):
                if all(peek(row, name) is not None for name in names):
                    return names
    return None


def _list(row: Row) -> list[Any] | None:
    for name in _LISTS:
        value = peek(row, name)
        if isinstance(value, list) and len(value) == 2:
            return list(row[name])
    return None


def _answers(row: Row) -> list[Any]:
    names = _sides(row)
    found = [row[name] for name in names] if names else _list(row)
    if found is None:
        raise RowError("bad_column", "there are no two answers to choose from")
    return [one.get("text", one) if isinstance(one, dict) else one for one in found]


def _compared(value: Any) -> int | None:
    """The better answer of ``A>B``, ``[[B>>A]]`` or ``A < B``; -1 for ``A=B``; else None."""
    plain = "".join(value.split()).strip("[]").lower() if isinstance(value, str) else ""
    found = _COMPARED.fullmatch(plain)
    if found is None or found[1] == found[3]:
        return None
    if found[2][0] not in "<>":
        return -1
    return _LETTERS[found[1] if found[2][0] == ">" else found[3]]


def _by_name(value: str, row: Row) -> int | None:
    """The answer that a letter, a column's name or a comparison means."""
    names = _sides(row) or ("", "")
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
    return isinstance(value, str) and (_is_tie(value) or _by_name(value, row) is not None)


def _choice(row: Row) -> str | None:
    """The column that names the better answer."""
    verdict = (name for name in _VERDICTS if _is_verdict(dict.get(row, name), row))
    return next((name for name in CHOICES if name in row), None) or next(verdict, None)


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


@dataclass
class _IndexedPair:
    """The format; ``variant`` says what an index means."""

    variant: str = ""
    name: str = "indexed_pair"
    tasks: tuple[str, ...] = ("rm",)
    fans_out: bool = False
    columns: Columns = field(default_factory=lambda: _COLUMNS)
    prompts: tuple[str, ...] = _pairs.PROMPTS

    @property
    def variants(self) -> Mapping[str, Format]:
        return {name: _IndexedPair(name) for name in VARIANTS}

    def matches(self, row: Row) -> str | None:
        choice = _choice(row)
        if choice is None or isinstance(row[choice], (list, dict)) or "chosen" in row:
            return None
        names = _sides(row)
        if names is not None:
            return f"{names[0]}, {names[1]} and {choice}"
        return f"a list of two answers and {choice}" if _list(row) is not None else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        if any(name in columns for name in CHOICES):
            return None
        found = [name for name in CHOICES if any(row.get(name) is not None for row in rows)]
        found += [n for n in _VERDICTS if any(_is_verdict(row.get(n), row) for row in rows)]
        if len(found) < 2:
            return None
        flags = " or ".join(f"--map label={name}" for name in found)
        return f"{' and '.join(found)} could each name the better answer", f"Say which with {flags}"

    def settle(self, rows: Sequence[Row]) -> tuple[str, str]:
        names_of = (*CHOICES, *_VERDICTS)
        choices = [(row, row[name]) for row in rows if (name := _turns.first_of(row, names_of))]
        open_ones = [
            (row, value)
            for row, value in choices
            if not _is_tie(value)
            and not (isinstance(value, str) and _by_name(value, row) is not None)
        ]
        seen = {_index(value) for _, value in open_ones}
        if not seen:
            return "", "the better answer is named"
        flags = any(isinstance(value, bool) for _, value in open_ones)
        names = _sides(open_ones[0][0])
        ends = (names[0][-1], names[1][-1]) if names else ("0", "1")
        words = f"the better answer's index is {' or '.join(sorted(map(str, seen)))}"
        if not flags and seen <= {1, 2} and (2 in seen or ends == ("1", "2")):
            return "1-based", f"{words}: it counts from 1"
        if not flags and seen <= {0, 1} and ends == ("0", "1"):
            return "0-based", f"{words}: it counts from 0"
        able = tuple(name for name, order in VARIANTS.items() if seen <= set(order))
        ways = "counts from 0, from 1," if "1-based" in able else "counts from 0"
        what = f"{words}, which does not show whether that {ways} or is a yes or no"
        raise UndecidedError(f"{what} to the first answer", able or tuple(VARIANTS))

    def _better(self, value: Any, row: Row) -> int:
        """0 or 1: which answer is the better one."""
        if value is None:
            raise RowError("bad_label", "nothing says which answer is the better one")
        if _is_tie(value):
            raise RowError("tie", f"the answers are equally good ({value!r})")
        named = _by_name(value, row) if isinstance(value, str) else None
        if named is not None:
            return named
        found = _index(value)
        order = VARIANTS.get(self.variant, (0, 1))
        if found is None or found not in order:
            detail = (
                f"{value!r} names neither answer; they are {order[0]} and {order[1]}, or A and B"
            )
            raise RowError("bad_label", detail)
        return order.index(found)

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        answers = _answers(row)
        name = _turns.chosen_of(row, (*CHOICES, *_VERDICTS), options.columns)
        better = self._better(row[name] if name else None, row)
        return [_pairs.pair(row, answers[better], answers[1 - better], options)]


FORMAT = _IndexedPair()
