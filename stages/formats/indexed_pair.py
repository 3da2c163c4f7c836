"""Two answers and which is the better one: its index, its letter, or its column's name.

An index alone does not say whether it counts from 0 or from 1; the rows of a file together may.
"""

from __future__ import annotations

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
VARIANTS = ("0-based", "1-based", "1-is-first")


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


def _by_name(value: str, row: Row) -> int | None:
    """The answer that a letter or a column's name means."""
    names = _sides(row) or ("", "")
    plain = value.strip()
    if plain in names:
        return names.index(plain)
    ending = plain.lower()
    for stem in ("model", "response", "answer", "output", "assistant", "option", "completion"):
        ending = ending.removeprefix(stem).lstrip(" _")
    return _LETTERS.get(ending)


def _index(value: Any) -> int | None:
    """A value as the number that it is or spells."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, (bool, int)):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _is_tie(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _pairs.TIES
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
        choice = next((name for name in CHOICES if name in row), None)
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
        if len(found) < 2:
            return None
        flags = " or ".join(f"--map label={name}" for name in found)
        return f"{' and '.join(found)} could each name the better answer", f"Say which with {flags}"

    def settle(self, rows: Sequence[Row]) -> tuple[str, str]:
        choices = [(row, row[name]) for row in rows if (name := _turns.first_of(row, CHOICES))]
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
        what = f"{words}, which does not show whether that counts from 0, from 1, or is a yes or no"
        raise UndecidedError(f"{what} to the first answer", VARIANTS)

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
        order = {"1-based": (1, 2), "1-is-first": (1, 0)}.get(self.variant, (0, 1))
        if found is None or found not in order:
            detail = (
                f"{value!r} names neither answer; they are {order[0]} and {order[1]}, or A and B"
            )
            raise RowError("bad_label", detail)
        return order.index(found)

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        answers = _answers(row)
        name = _turns.chosen_of(row, CHOICES, options.columns)
        better = self._better(row[name] if name else None, row)
        return [_pairs.pair(row, answers[better], answers[1 - better], options)]


FORMAT = _IndexedPair()
