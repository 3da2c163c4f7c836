"""Formats whose rows hold the two answers in two columns of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from stages.contract import Example, FormatOptions, Row
from stages.errors import RowError
from stages.formats import _pairs
from stages.formats._asked import Asking, says, two_of
from stages.kinds import PAIR


class NamedSides(Asking, abstract=True):
    """A format whose answers stand under one of several pairs of names.

    Args:
        sides: the names of the chosen and of the rejected answer's column, the usual ones first.
        holds: whether a row's column can be an answer.
        lacking: what a row is refused with that has no such pair; None reads the usual columns.
    """

    kinds = (PAIR,)
    prompts = _pairs.PROMPTS

    def __init__(
        self,
        name: str,
        sides: tuple[tuple[str, str], ...],
        holds: Callable[[Row, str], bool],
        lacking: str | None = None,
    ) -> None:
        self.name, self._sides, self._holds, self._lacking = name, sides, holds, lacking
        self.columns = {"answers": tuple(itertools.chain(*sides)), **_pairs.BESIDE}

    def _sides_of(self, row: Row) -> tuple[str, str] | None:
        both = (names for names in self._sides if all(self._holds(row, name) for name in names))
        return next(both, None)

    def _says(self, row: Row, name: str) -> bool:
        return self._holds(row, name) and says(row, name)

    def matches(self, row: Row) -> str | None:
        names = self._sides_of(row)
        return f"{names[0]} and {names[1]}" if names else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = two_of(row, self._sides, options.columns, holds=self._says) or self._sides_of(row)
        if names is None and self._lacking is not None:
            raise RowError("bad_column", self._lacking)
        chosen, rejected = names or self._sides[0]
        return [_pairs.pair(row, row.get(chosen), row.get(rejected), options)]
