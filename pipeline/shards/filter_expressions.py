"""Expressions of ``--filter``, evaluated with polars: checked for their types first.

A comparison with nothing is null, as in SQL: neither true nor false. Numbers are compared as they
are, and computed with as doubles; what has no result (a division by zero) is null.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import polars as pl

from pipeline.shards.values import NOTHING, NUMBER, TEXT, TRUTH, WORDS
from stages.rows.expressions import Expression, Node, key_of, refuse

_DTYPES: dict[str, Any] = {NUMBER: pl.Float64, TEXT: pl.String, TRUTH: pl.Boolean}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _unless_zero(divisor: Any) -> Any:
    """The divisor; null where it is zero."""
    return pl.when(divisor != 0).then(divisor)


# Of each operator and function: the type of all that it takes, the type that it gives, and how.
_OPERATIONS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "and": (TRUTH, TRUTH, pl.all_horizontal),
    "or": (TRUTH, TRUTH, pl.any_horizontal),
    "not": (TRUTH, TRUTH, lambda one: one.not_()),
    "+": (NUMBER, NUMBER, operator.add),
    "-": (NUMBER, NUMBER, operator.sub),
    "*": (NUMBER, NUMBER, operator.mul),
    "/": (NUMBER, NUMBER, lambda one, other: one / _unless_zero(other)),
    "%": (NUMBER, NUMBER, lambda one, other: one % _unless_zero(other)),
    "negate": (NUMBER, NUMBER, operator.neg),
    "abs": (NUMBER, NUMBER, lambda one: one.abs()),
    "lower": (TEXT, TEXT, lambda one: one.str.to_lowercase()),
    "upper": (TEXT, TEXT, lambda one: one.str.to_uppercase()),
    "length": (TEXT, NUMBER, lambda one: one.str.len_chars()),
    "contains": (TEXT, TRUTH, lambda one, other: one.str.contains(other, literal=True)),
    "starts_with": (TEXT, TRUTH, lambda one, other: one.str.starts_with(other)),
    "ends_with": (TEXT, TRUTH, lambda one, other: one.str.ends_with(other)),
}


class _Typed(NamedTuple):
    type: str
    value: Any  # an expression of polars

    def as_(self, type_: str) -> Any:
        """The expression; where it is always null, of the type that is needed."""
        return pl.lit(None, dtype=_DTYPES[type_]) if self.type == NOTHING else self.value


class _Evaluation:
    """One expression over columns of known types.

    Args:
        types: of each name that it reads, by its key.
    """

    def __init__(self, expression: Expression, types: Mapping[str, str]) -> None:
        self._text, self._asked = expression.text, expression.asked
        self._types = types

    def _refuse(self, at: int, why: str) -> NoReturn:
        refuse(self._text, at, why, asked=self._asked)

    def of(self, node: Node, computing: bool = False) -> _Typed:
        """The type and the value of a node; ``computing``: what it gives is computed with.

        Raises:
            UsageError: the types of its parts do not go together.
        """
        if node.kind in ("column", "figure"):
            return self._name(node)
        if node.kind in _DTYPES:  # a literal
            return _Typed(node.kind, pl.lit(node.value))
        computes = _OPERATIONS.get(node.kind, ("",))[0] == NUMBER
        parts = [self.of(part, computes) for part in node.parts]
        if node.kind == "null":
            return _Typed(TRUTH, parts[0].as_(TEXT).is_null())
        if node.kind in _COMPARE:
            return self._compare(node, node.kind, parts)
        if node.kind == "coalesce":
            type_ = self._common(node, parts)
            if type_ == NOTHING:
                return _Typed(NOTHING, None)
            return _Typed(type_, pl.coalesce(*[one.as_(type_) for one in parts]))
        takes, gives, operation = _OPERATIONS[node.kind]
        values = self._all(node, parts, takes)
        if not computes:
            return _Typed(gives, operation(*values))
        # In doubles: whole numbers would wrap around. What is no number becomes null once, at the
        # end: polars takes twice as long for each time that it does so inside.
        value = operation(*(one.cast(pl.Float64) for one in values))
        return _Typed(gives, value if computing else value.fill_nan(None))

    def _name(self, node: Node) -> _Typed:
        key = key_of(node.kind, node.value)
        type_ = self._types[key]
        return _Typed(type_, None if type_ == NOTHING else pl.col(key))

    def _all(self, node: Node, parts: list[_Typed], type_: str) -> list[Any]:
        """The values of all parts, which are of one type."""
        for part, typed in zip(node.parts, parts, strict=True):
            if typed.type not in (type_, NOTHING):
                what = f"{WORDS[type_]} is needed here, and this is {WORDS[typed.type]}"
                self._refuse(part.at, what)
        return [one.as_(type_) for one in parts]

    def _common(self, node: Node, parts: list[_Typed]) -> str:
        """The type of all parts; ``NOTHING`` where none has a value."""
        type_ = next((one.type for one in parts if one.type != NOTHING), NOTHING)
        if type_ != NOTHING:
            self._all(node, parts, type_)
        return type_

    def _compare(self, node: Node, sign: str, parts: list[_Typed]) -> _Typed:
        types = [one.type for one in parts if one.type != NOTHING]
        if len(types) == 2 and types[0] != types[1]:
            self._refuse(node.at, f"{WORDS[types[0]]} is compared with {WORDS[types[1]]}")
        type_ = types[0] if types else TEXT
        if type_ == TRUTH and sign not in ("=", "!="):
            self._refuse(node.at, "true and false are equal or not, never more or less")
        left, right = (one.as_(type_) for one in parts)
        return _Typed(TRUTH, _COMPARE[sign](left, right))


def evaluate(expression: Expression, frame: pl.DataFrame, types: Mapping[str, str]) -> pl.Series:
    """The value for each row: true, false or null.

    Args:
        frame: a column for each name that it reads, called by ``key_of``.
        types: of these: ``NUMBER``, ``TEXT``, ``TRUTH``, or ``NOTHING`` where no row has a value.

    Raises:
        UsageError: types do not go together, or it is no condition.
    """
    found = _Evaluation(expression, types).of(expression.tree)
    if found.type not in (TRUTH, NOTHING):
        why = f"it gives {WORDS[found.type]}, not true or false"
        refuse(expression.text, 0, why, asked=expression.asked)
    return frame.with_columns(found.as_(TRUTH).alias("."))["."]
