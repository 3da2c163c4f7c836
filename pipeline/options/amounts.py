"""Amounts: whole numbers that may be written in thousands, millions and billions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pipeline.options import values as v


@dataclass(eq=False, repr=False)
class Amount(v.Value):
    """A number of things, also as ``"20k"``, ``"50M"`` or ``"1.5B"``."""

    @property
    def words(self) -> str:
        return 'a whole number above 0, or a text such as "50M"'

    def of_click(self) -> dict[str, Any]:
        return {"type": self._read, "metavar": "AMOUNT"}

    def _read(self, text: str) -> int:
        """Of a word of a command line."""
        import click

        value = self.loosened(text)
        if not isinstance(value, int) or value < 1:
            raise click.BadParameter(f"{text!r} is not {self.words}.")
        return value

    def of_pydantic(self) -> Any:
        from typing import Annotated

        from pydantic import Field

        return Annotated[int, Field(ge=1)]

    def loosened(self, value: Any) -> Any:
        found = AMOUNT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        from fractions import Fraction  # few recipes have amounts in words

        exact = Fraction(found[1]) * 1000 ** " kmb".index((found[2] or " ").lower())
        return int(exact) if exact.denominator == 1 else value


AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKmMbB]?)")
