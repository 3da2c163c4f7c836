"""``--dedup-keep``: which of equal examples stays."""

from __future__ import annotations

from dataclasses import dataclass

from stages.errors import UsageError

FIRST = "first"


@dataclass(frozen=True, slots=True)
class Keep:
    """The first, or the one with the highest or the lowest number in a column.

    Attributes:
        column: of the raw row, dotted; empty where the first stays.
    """

    column: str = ""
    highest: bool = True

    @classmethod
    def of(cls, text: str) -> Keep:
        """What a text says.

        Raises:
            UsageError: it is neither ``first`` nor ``highest:COLUMN`` nor ``lowest:COLUMN``.
        """
        which, _, column = text.partition(":")
        if text == FIRST:
            return cls()
        if which not in ("highest", "lowest") or not column:
            raise UsageError(
                f"--dedup-keep {text!r} is not first, highest:COLUMN or lowest:COLUMN.",
                "For example --dedup-keep highest:score.",
            )
        return cls(column, which == "highest")
