"""Rows that are recognised to be refused by their name: no example of the task is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format


class Unusable(Format, abstract=True):
    """A format that none of the tasks can use.

    Args:
        evidence: why a row looks like it, in words; None when it does not.
        what: what such rows are, as the rest of a sentence that begins with the evidence.
        instead: what to give instead.
    """

    usable = False

    def __init__(
        self,
        *,
        name: str,
        kinds: tuple[str, ...],
        columns: Columns,
        evidence: Callable[[Row], str | None],
        what: str,
        instead: str,
    ) -> None:
        self.name, self.kinds, self.columns = name, kinds, columns
        self._evidence, self._what, self._instead = evidence, what, instead

    def matches(self, row: Row) -> str | None:
        return self._evidence(row)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        said = next(reason for row in rows if (reason := self._evidence(row)))
        return f"{said}: {self._what}", self._instead

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        raise RowError(self.name, self._what)
