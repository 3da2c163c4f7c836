"""Which examples the filters of each source leave out, and how many each of them does.

An example stays where every filter of its source is true. The filters are tried in their order, and
an example counts for the first that is not true for it. Where that one is null, because a column is
absent, say, the example is left out too, and counted as such.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.inputs.opening import called_like_a_figure, unknown
from pipeline.options.config import Config
from pipeline.shards.plan import Member
from pipeline.shards.values import NOTHING, NUMBER, Rows, Seen, at_path, over
from stages.columns import Bools, whole
from stages.errors import DataError
from stages.rows.expressions import FIGURES, Expression, key_of, parse

if TYPE_CHECKING:
    import polars as pl

Numbers = npt.NDArray[np.uint16]
# The column of a part that a figure is made from, where it has another name.
_RATED = "step_labels"
_FROM = {"n_tokens": "length", "n_trained": "trained", "n_steps": _RATED, "n_unrated": _RATED}


class Filtered(NamedTuple):
    """What the filters of a build leave out.

    Attributes:
        filters: the number of the source and the text of each filter.
        by: of each example, the number from 1 of the filter that leaves it out; 0 where none does.
        null: whether that filter is null for it.
    """

    filters: tuple[tuple[int, str], ...]
    by: Numbers
    null: Bools


class SourceFilters(NamedTuple):
    """The filters of one source.

    Attributes:
        paths: of the values that rows carry.
        seen: the types of these.
    """

    expressions: tuple[Expression, ...]
    paths: tuple[str, ...]
    seen: Seen

    @classmethod
    def of(cls, config: Config, seen: Seen) -> "SourceFilters":
        """Those of the one source of a configuration."""
        return cls(tuple(map(parse, config.source.filter)), config.carried.paths, seen)

    @property
    def _figures(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in self.expressions for name in one.figures))

    def columns(self, config: Config) -> tuple[str, ...]:
        """The columns of a part that the expressions are made from."""
        figures = (_FROM.get(name, name) for name in self._figures)
        return tuple(dict.fromkeys(("line", *config.carried.columns, *figures)))

    def _read(self, rows: Rows) -> "tuple[pl.DataFrame, dict[str, str]]":
        """What the expressions read of some rows, and the type of every name, by its key.

        Raises:
            DataError: a column has no type that an expression can read.
        """
        import polars as pl

        made: dict[str, Any] = {".": pl.Series(np.zeros(rows.num_rows, bool))}
        types = {}
        for path in dict.fromkeys(path for one in self.expressions for path in one.columns):
            key = key_of("column", path)
            type_ = types[key] = self.seen.type_of(path, "--filter")
            if type_ != NOTHING:
                values = at_path(rows, self.paths, path)
                made[key] = pl.Series(_of_type(values, type_, self.seen.is_whole(path)))
        for name in self._figures:
            key = key_of("figure", name)
            types[key], made[key] = NUMBER, pl.Series(_figure(rows, name))
        return pl.DataFrame(made), types

    def apply(self, rows: Rows) -> tuple[Numbers, Bools]:
        """Of each row, the number from 1 of the filter that leaves it out, and whether it is null.

        Raises:
            UsageError: an expression compares what cannot be compared.
            DataError: a column has no type that an expression can read.
        """
        by, null = np.zeros(rows.num_rows, np.uint16), np.zeros(rows.num_rows, bool)
        if not self.expressions:
            return by, null
        from pipeline.shards.filter_expressions import evaluate

        frame, types = self._read(rows)
        for number, expression in enumerate(self.expressions, 1):
            found = evaluate(expression, frame, types)
            dropped = (by == 0) & ~found.fill_null(False).to_numpy()
            by[dropped] = number
            null[dropped] = found.is_null().to_numpy()[dropped]
        return by, null

    def require_present(self, where: str) -> None:
        """Some row has each column, where there are rows.

        Raises:
            UsageError: none has, and the expression does not say what that means.
        """
        for expression in self.expressions if self.seen.rows else ():
            for path in expression.columns:
                absent = self.seen.type_of(path, "--filter") == NOTHING
                if absent and path not in expression.expected:
                    raise unknown(expression, path, where, FIGURES)


def _figure(rows: Rows, name: str) -> pa.Array:
    column = whole(rows.column(_FROM.get(name, name)))
    if _FROM.get(name) == _RATED:
        import polars as pl

        ratings = pl.Series(column).list
        unrated = ratings.len() - ratings.drop_nulls().list.len()
        column = (unrated if name == "n_unrated" else ratings.len()).to_arrow()
    return column.cast(pa.float64() if name == "margin" else pa.int64())


def _of_type(values: pa.StructArray, type_: str, is_whole: bool) -> pa.Array:
    """The values of a column of one type."""
    if type_ != NUMBER:
        return values.field(type_)
    whole = values.field("whole")
    rounded = whole.cast(pa.float64(), safe=False)
    return whole if is_whole else pc.coalesce(rounded, values.field("number"))


def _require_own(config: Config, part: Member, unread: Mapping[str, int]) -> None:
    """No column that nothing reads has the name of a figure that is read.

    Raises:
        UsageError: one has: the name could mean either.
    """
    named = {name for text in config.source.filter for name in parse(text).figures}
    for name in sorted(named & unread.keys()):
        raise called_like_a_figure(name, part.source.name)


def of_rows(config: Config, rows: Rows, name_of: Callable[[int], str]) -> tuple[Numbers, Bools]:
    """The same as ``SourceFilters.apply``, for some rows of the one source alone: their columns
    have the types of these rows.

    Args:
        name_of: gives a line of the rows the name that a message calls it by.
    """
    if not config.source.filter:
        return np.zeros(rows.num_rows, np.uint16), np.zeros(rows.num_rows, bool)
    seen = Seen(config.carried.paths)
    seen.add(rows, lambda at: name_of(rows.column("line")[at].as_py()))
    return SourceFilters.of(config, seen).apply(rows)


def nothing_left(filtered: Filtered) -> DataError:
    """The error of a build whose examples are all left out."""
    counts = np.bincount(filtered.by, minlength=len(filtered.filters) + 1)[1:]
    lines = [
        f"  {count:>7} {text}"
        for (_, text), count in zip(filtered.filters, counts.tolist(), strict=True)
    ]
    return DataError(
        "Nothing is left. The filters leave out these examples:\n" + "\n".join(lines),
        "Look at what they would leave with pipeline plan, and loosen one.",
    )


def over_parts(
    config: Config, parts: Sequence[Member], unread: Sequence[Mapping[str, int]]
) -> Filtered | None:
    """What the filters of all sources leave out of the parts of a build; None without filters.

    Args:
        unread: of each part, the columns that some of its rows have, and that nothing reads.

    Raises:
        UsageError: no row of a source has a column, or types do not go together.
        DataError: a column has no type that an expression can read.
    """
    if not any(one.options.filter for one in config.sources):
        return None
    filters: list[tuple[int, str]] = []
    by, null = {}, {}
    for number, source in enumerate(config.sources):
        own = config.only(number)
        mine = [at for at, part in enumerate(parts) if part.numbers.source == number]
        machine = SourceFilters.of(own, over([parts[at] for at in mine], own.carried.paths))
        machine.require_present(f"no row of {source.name}" if source.name else "no row")
        for at in mine:
            _require_own(own, parts[at], unread[at])
        for at in mine:
            found, null[at] = machine.apply(parts[at].source.read(machine.columns(own)))
            by[at] = np.where(found, found + len(filters), 0).astype(np.uint16)
        filters += [(number, text) for text in source.options.filter]
    every = range(len(parts))
    return Filtered(
        tuple(filters),
        np.concatenate([np.zeros(0, np.uint16), *(by[at] for at in every)]),
        np.concatenate([np.zeros(0, bool), *(null[at] for at in every)]),
    )
