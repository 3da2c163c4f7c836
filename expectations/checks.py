"""The two things an invariant can say about a column of metrics, each in both languages.

A check is data: bounds on one column, or two columns that must agree. From it come the polars
predicate that looks at every row in stream, and the Great Expectations expectation that judges the
metrics of what was written. A bound may be the name of a parameter, such as ``max_length``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import polars as pl

Bound = int | str | None


class Check(Protocol):
    """One statement about metrics.

    Attributes:
        needs: where it is made, as ``contract.Scope.needs``; empty means everywhere.
    """

    @property
    def needs(self) -> tuple[str, ...]: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def bad(self, parameters: Mapping[str, int]) -> pl.Expr:
        """Selects the rows that break it; null where it cannot be said."""
        ...

    def expectation(self) -> tuple[str, dict[str, Any]]:
        """Type and arguments of the expectation, parameters by name."""
        ...


def _number(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.Int64)  # booleans among them


@dataclass(frozen=True, slots=True)
class Between:
    """A column's values lie between two bounds, both included."""

    column: str
    low: Bound = None
    high: Bound = None
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def bad(self, parameters: Mapping[str, int]) -> pl.Expr:
        low, high = (parameters[b] if isinstance(b, str) else b for b in (self.low, self.high))
        outside = []
        if low is not None:
            outside.append(_number(self.column) < low)
        if high is not None:
            outside.append(_number(self.column) > high)
        return pl.any_horizontal(outside)

    def expectation(self) -> tuple[str, dict[str, Any]]:
        bounds = {"min_value": self.low, "max_value": self.high}
        named = {
            key: {"$PARAMETER": bound} if isinstance(bound, str) else bound
            for key, bound in bounds.items()
            if bound is not None
        }
        return "expect_column_values_to_be_between", {"column": self.column, **named}


@dataclass(frozen=True, slots=True)
class Equal:
    """Two columns agree in every row."""

    column: str
    other: str
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.other)

    def bad(self, parameters: Mapping[str, int]) -> pl.Expr:
        return _number(self.column) != _number(self.other)

    def expectation(self) -> tuple[str, dict[str, Any]]:
        columns = {"column_A": self.column, "column_B": self.other}
        return "expect_column_pair_values_to_be_equal", {**columns, "ignore_row_if": "neither"}


def none(column: str, *needs: str) -> Between:
    """Nothing of this is found."""
    return Between(column, 0, 0, needs)


def holds(column: str, *needs: str) -> Between:
    """A yes or no is yes."""
    return Between(column, 1, 1, needs)


def every_sequence(check: Between) -> tuple[Between, ...]:
    """A check on each sequence of an example: its one, or both sides of a pair."""
    sides = [
        replace(check, column=f"{side}_{check.column}", needs=("compares",))
        for side in ("chosen", "rejected")
    ]
    return (replace(check, needs=("labelled",)), *sides)
