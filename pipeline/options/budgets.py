"""How much of a source a build uses: keys of ``[[source]]`` alone, since a command has one source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline.options import values as v
from pipeline.options.phases import Option, declared, option
from stages.errors import UsageError


@dataclass(frozen=True, slots=True)
class Amount(v.Value):
    """A number of things, also as ``"20k"``, ``"50M"`` or ``"1.5B"``."""

    @property
    def words(self) -> str:
        return 'a whole number above 0, or a text such as "50M"'

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


# fmt: off
@dataclass(frozen=True, slots=True)
class Budget:
    """At most one of them is given for a source; a source without one is used once, whole."""

    share: float | None = option(None, v.Number(most=1, above=0), "Share of the build's trained tokens.", flags=())
    rows: int | None = option(None, Amount(), "Rows that are used.", flags=())
    tokens: int | None = option(None, Amount(), 'Tokens that are used, for example "50M".', flags=())
    epochs: float | None = option(None, v.Number(above=0), "Times that the source is used: whole passes, then a part.", flags=())
    weight: float | None = option(None, v.Number(above=0), "How much of it is used beside the other weights.", flags=())

    def __post_init__(self) -> None:
        if len(self.given) > 1:
            raise UsageError(f"{' and '.join(self.given)} both say how much is used.", "Leave one out.")

    @property
    def given(self) -> tuple[str, ...]:
        """The names of those that are given."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name) is not None)
# fmt: on


BUDGET = {one.name: declared(one) for one in fields(Budget)}


def _own(name: str, value: v.Value, sentence: str) -> Option:
    return Option(name=name, value=value, help=sentence, default=None, flags=(), by_source=True)


NAME = _own("name", v.Text(), "What a source or build is called in messages and in --set.")
FILTER = _own("filter", v.Text(), "Use only examples for which this expression is true.")
OF_SOURCE: dict[str, Option] = {"name": NAME, **BUDGET, "filter": FILTER}


def require_planned(name: str, given: Mapping[str, Any]) -> None:
    """Refuse keys that are declared, and that nothing plans by yet.

    Raises:
        UsageError: one of them is given.
    """
    asked = [key for key in (*BUDGET, "filter") if given.get(key) is not None]
    if asked:
        raise UsageError(
            f"{asked[0]} of source {name!r} is not built by this version.",
            f"Leave {' and '.join(asked)} out: every source is then used once, whole.",
        )
