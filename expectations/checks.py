"""The two kinds of checks on columns of metrics, each for our own code and for Great Expectations.

A check is data: bounds on one column, or two columns that must be equal. Three things are derived
from it: the predicate that checks every row where rows are, the few rows that would break it if any
row does, and the Great Expectations expectation that judges these. A bound may be the name of a
parameter, such as ``max_length``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bound = int | str | None
Values = Mapping[str, npt.NDArray[np.int64]]  # columns of metrics by name, all of one length


@dataclass(frozen=True, slots=True)
class Between:
    """The values of a column are between two bounds, both included.

    Attributes:
        needs: traits of the rows it applies to, as ``contract.Scope.needs``; empty means any.
    """

    column: str
    low: Bound = None
    high: Bound = None
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about."""
        return (self.column,)

    def broken(self, metrics: Values, parameters: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        """Which rows break it."""
        low, high = (parameters[b] if isinstance(b, str) else b for b in (self.low, self.high))
        values = metrics[self.column]
        outside = np.zeros(len(values), bool)
        if low is not None:
            outside |= values < low
        if high is not None:
            outside |= values > high
        return outside

    def telling(self, metrics: Values) -> tuple[int, ...]:
        """Some rows, at least one of which breaks it if any row does, whatever the parameters."""
        values = metrics[self.column]
        return (int(values.argmin()), int(values.argmax())) if len(values) else ()

    def expectation(self) -> tuple[str, dict[str, Any]]:
        """Type and arguments of the expectation, parameters by name."""
        bounds = {"min_value": self.low, "max_value": self.high}
        named = {
            key: {"$PARAMETER": bound} if isinstance(bound, str) else bound
            for key, bound in bounds.items()
            if bound is not None
        }
        return "expect_column_values_to_be_between", {"column": self.column, **named}


@dataclass(frozen=True, slots=True)
class Equal:
    """Two columns are equal in every row; its methods are those of ``Between``."""

    column: str
    other: str
    needs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.other)

    def broken(self, metrics: Values, parameters: Mapping[str, int]) -> npt.NDArray[np.bool_]:
        differs: npt.NDArray[np.bool_] = metrics[self.column] != metrics[self.other]
        return differs

    def telling(self, metrics: Values) -> tuple[int, ...]:
        differs = metrics[self.column] != metrics[self.other]
        return (int(differs.argmax()),) if len(differs) else ()

    def expectation(self) -> tuple[str, dict[str, Any]]:
        columns = {"column_A": self.column, "column_B": self.other}
        return "expect_column_pair_values_to_be_equal", {**columns, "ignore_row_if": "neither"}


Check: TypeAlias = Between | Equal


def none(column: str, *needs: str) -> Between:
    """A count is 0, or a boolean is false."""
    return Between(column, low=0, high=0, needs=needs)


def holds(column: str, *needs: str) -> Between:
    """A boolean is true."""
    return Between(column, low=1, high=1, needs=needs)


def every_sequence(check: Between) -> tuple[Between, ...]:
    """A check on each sequence of an example: its one, or both sides of a pair."""
    sides = [
        replace(check, column=f"{side}_{check.column}", needs=("compares",))
        for side in ("chosen", "rejected")
    ]
    return (replace(check, needs=("labelled",)), *sides)
