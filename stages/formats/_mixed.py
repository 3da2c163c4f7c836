"""Several formats in one file: each row is read by the one format that it fits."""

from __future__ import annotations

from collections.abc import Sequence

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format

AND = "+"  # between the readings of a mixture, which is their reading


class Mixed(Format):
    """Reads rows by their formats, which give one kind of examples."""

    name = AND
    kinds: tuple[str, ...] = ()
    columns: Columns = {}

    def __init__(self, readings: Sequence[str], parts: Sequence[Format]) -> None:
        self._parts = dict(zip(readings, parts, strict=True))
        self.name = AND.join(part.name for part in parts)
        self.kinds = tuple(k for k in parts[0].kinds if all(k in part.kinds for part in parts))
        meanings = dict.fromkeys(meaning for part in parts for meaning in part.columns)
        self.columns = {
            meaning: tuple(
                dict.fromkeys(name for part in parts for name in part.columns.get(meaning, ()))
            )
            for meaning in meanings
        }
        self.prompts = tuple(dict.fromkeys(name for part in parts for name in part.prompts))
        self.fans_out = any(part.fans_out for part in parts)
        self.first_error = any(part.first_error for part in parts)

    def matches(self, row: Row) -> str | None:
        fits = fitting(self, row)
        return f"fits {fits[0]}" if len(fits) == 1 else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        fits = fitting(self, row)
        if len(fits) > 1:
            raise RowError("ambiguous_format", f"the row fits {' and '.join(fits)}")
        if not fits:
            raise RowError("no_format", f"the row fits none of {', '.join(self._parts)}")
        return self._parts[fits[0]].read(row, options)


def fitting(format_: Format, row: Row) -> list[str]:
    """The readings of a mixture that a row fits; none of a format that is no mixture."""
    if not isinstance(format_, Mixed):
        return []
    plain = dict(dict.items(row))  # to look at a column here is not to read it
    return [reading for reading, part in format_._parts.items() if part.matches(plain)]
