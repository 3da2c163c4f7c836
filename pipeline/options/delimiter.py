"""What separates the cells of a table of texts: one character, a tab also by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.options import values as v
from stages.errors import UsageError

_TABS = ("tab", "\\t", "\t")


@dataclass(eq=False, repr=False)
class Delimiter(v.Value):
    """One ASCII character that no quote, number or word has in it."""

    @property
    def words(self) -> str:
        return 'one character, or "tab"'

    def loosened(self, value: Any) -> Any:
        return "\t" if value in _TABS else value

    def settled(self, value: Any) -> Any:
        value = self.loosened(value)
        if len(value) != 1 or not value.isascii() or value.isalnum() or value in '"\r\n\0':
            raise UsageError(
                f"--delimiter {value!r} cannot separate cells.",
                "Give one character that is no letter, digit or quote: ',', ';', '|' or tab.",
            )
        return value
