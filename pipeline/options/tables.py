"""How a table of texts is read: what separates its cells, and which of them are JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pipeline.options import many_values as many
from pipeline.options import values as v
from stages.errors import UsageError

_TABS = ("tab", "\\t", "\t")


@dataclass(eq=False, repr=False)
class Delimiter(v.Value):
    """One ASCII character that is in no quote, number or word; a tab also by its name."""

    @property
    def words(self) -> str:
        return 'one character, or "tab"'

    def of_pydantic(self) -> Any:
        from typing import Annotated

        from pydantic import Field

        return Annotated[str, Field(pattern=r'^([^a-zA-Z0-9"\r\n]|tab|\\t)$')]

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


@dataclass(eq=False, repr=False)
class Cells(many.Pairs):
    """What the cells of columns are."""

    def of_pydantic(self) -> Any:
        return dict[str, Literal["json", "text"]]

    def settled(self, value: Any) -> Any:
        found = super().settled(value)
        odd = next((name for name, kind in found.items() if kind not in ("json", "text")), None)
        if odd is not None:
            raise UsageError(f"--cells {odd}={found[odd]}: cells are json or text.")
        return found
