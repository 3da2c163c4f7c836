"""Formats whose rows hold the two answers in two columns of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.formats import _pairs
from stages.formats._asked import Asking, says, two_of
from stages.kinds import PAIR


@dataclass(frozen=True)
class NamedSides(Asking):
    """A format whose answers stand under one of several pairs of names.

    Attributes:
        sides: the names of the chosen and of the rejected answer's column, the usual ones first.
        holds: whether a row's column can be an answer.
        lacking: what a row is refused with that has no such pair; None reads the usual columns.
    """

    name: str
    sides: tuple[tuple[str, str], ...]
    holds: Callable[[Row, str], bool]
    lacking: str | None = None
    kinds: tuple[str, ...] = (PAIR,)
    fans_out: bool = False
    prompts: tuple[str, ...] = _pairs.PROMPTS

    @property
    def columns(self) -> Columns:
        return {"answers": tuple(name for names in self.sides for name in names), **_pairs.BESIDE}

    def _sides(self, row: Row) -> tuple[str, str] | None:
        found = (names for names in self.sides if all(self.holds(row, name) for name in names))
        return next(found, None)

    def _says(self, row: Row, name: str) -> bool:
        return self.holds(row, name) and says(row, name)

    def matches(self, row: Row) -> str | None:
        names = self._sides(row)
        return f"{names[0]} and {names[1]}" if names else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = two_of(row, self.sides, options.columns, self._says) or self._sides(row)
        if names is None and self.lacking is not None:
            raise RowError("bad_column", self.lacking)
        chosen, rejected = names or self.sides[0]
        return [_pairs.pair(row, row.get(chosen), row.get(rejected), options)]
