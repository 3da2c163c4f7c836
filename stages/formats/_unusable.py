"""Rows that are recognised to be refused by their name: no example of the task is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError


@dataclass(frozen=True)
class Unusable:
    """A format that none of the tasks can use.

    Attributes:
        evidence: why a row looks like it, in words; None when it does not.
        what: what such rows are, as the rest of a sentence that begins with the evidence.
        instead: what to give instead.
    """

    name: str
    kinds: tuple[str, ...]
    columns: Columns
    evidence: Callable[[Row], str | None]
    what: str
    instead: str
    fans_out: bool = False

    def matches(self, row: Row) -> str | None:
        return self.evidence(row)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        said = next(reason for row in rows if (reason := self.evidence(row)))
        return f"{said}: {self.what}", self.instead

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        raise RowError(self.name, self.what)
