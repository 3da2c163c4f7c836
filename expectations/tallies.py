"""What the laws find in a table of metrics, kept in place of the table: counts and telling rows.

A table has a row for every example of a shard. Where the shard is, our own code checks all of them
and keeps how many break each check, the numbers of the first, and the sums of all columns. It also
keeps the metrics of some rows: those with the lowest and the highest value of each bounded column,
one in which two columns differ that must be equal, and the first that breaks a law. A check holds
for all rows exactly if it holds for these, so Great Expectations judges these by the same suites,
and must come to the same result as the counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import contract, stored_rows
from expectations.invariants import applying, metrics_of
from stages import columns, errors, findings


@dataclass(frozen=True, slots=True)
class Broken:
    """What breaks one law.

    Attributes:
        count: rows that break any of its checks; ``each``: those that break each of them.
        rows: the first of these rows.
    """

    count: int
    each: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """One table of metrics, or several one after another.

    Attributes:
        rows: how many rows it has.
        laws: what breaks each of the laws that apply to it.
        sums: of every column.
        at: the numbers of the telling rows; ``shown``: their metrics, of the columns that laws use.
    """

    rows: int
    laws: Mapping[str, Broken]
    sums: Mapping[str, int]
    at: columns.Ints
    shown: contract.Values

    def seen(self, law: contract.Invariant, context: contract.Context) -> dict[str, int]:
        """The metrics of the first row that breaks a law; empty where none does."""
        rows = self.laws[law.name].rows
        if not rows:
            return {}
        (place,) = np.flatnonzero(self.at == rows[0])
        names = dict.fromkeys(c for check in law.checks_for(context) for c in check.columns)
        return {name: int(self.shown[name][place]) for name in names}


class Laws:
    """The laws that apply to one table of a build."""

    def __init__(self, context: contract.Context, level: str) -> None:
        self._level = level
        self._bounds = contract.parameters(context)
        self._checks = {law.name: law.checks_for(context) for law in applying(context, level)}
        columns = (c for checks in self._checks.values() for check in checks for c in check.columns)
        self._columns = list(dict.fromkeys(columns))

    def _telling(self, metrics: contract.Values) -> columns.Ints:
        """Rows among which each check is broken that is broken at all."""
        checks = {check for checks in self._checks.values() for check in checks}
        return np.array(sorted({at for one in checks for at in one.telling(metrics)}), np.int64)

    def tally(self, metrics: contract.Values) -> Tally:
        """Check every row of a table.

        Args:
            metrics: its columns.

        Raises:
            GateError: it has not all columns that the laws use.
        """
        missing = sorted(set(self._columns) - metrics.keys())
        if missing:
            raise errors.GateError(
                f"The {self._level} table has no columns {', '.join(missing)}.",
                "Nothing was published.",
            )
        found: dict[str, Broken] = {}
        for name, checks in self._checks.items():
            bad = [check.broken(metrics, self._bounds) for check in checks]
            rows = np.flatnonzero(np.logical_or.reduce(bad))
            each = tuple(int(np.count_nonzero(one)) for one in bad)
            found[name] = Broken(len(rows), each, tuple(rows[: findings.NAMED].tolist()))
        firsts = [law.rows[0] for law in found.values() if law.rows]
        at = np.union1d(self._telling(metrics), np.array(firsts, np.int64))
        return Tally(
            rows=len(next(iter(metrics.values()))),
            laws=found,
            sums={name: int(values.sum()) for name, values in metrics.items()},
            at=at,
            shown={name: metrics[name][at] for name in self._columns},
        )

    def condensed(self, one: Tally) -> Tally:
        """The same with no more telling rows than are needed: for pieces that were joined."""
        firsts = [law.rows[0] for law in one.laws.values() if law.rows]
        kept = np.isin(one.at, firsts)
        kept[self._telling(one.shown)] = True
        shown = {name: values[kept] for name, values in one.shown.items()}
        return Tally(one.rows, laws=one.laws, sums=one.sums, at=one.at[kept], shown=shown)


def _plus(one: Broken, other: Broken, before: int) -> Broken:
    each = tuple(a + b for a, b in zip(one.each, other.each, strict=True))
    rows = (*one.rows, *(row + before for row in other.rows))[: findings.NAMED]
    return Broken(one.count + other.count, each, rows)


def joined(tallies: Sequence[Tally]) -> Tally:
    """Tables of one level, one after another, as one: at least one."""
    laws, sums = dict(tallies[0].laws), dict(tallies[0].sums)
    starts = np.concatenate([[0], np.cumsum([one.rows for one in tallies])])
    for one, before in zip(tallies[1:], starts[1:-1].tolist(), strict=True):
        laws = {name: _plus(law, one.laws[name], before) for name, law in laws.items()}
        sums = {name: value + one.sums[name] for name, value in sums.items()}
    return Tally(
        rows=int(starts[-1]),
        laws=laws,
        sums=sums,
        at=np.concatenate([one.at + start for one, start in zip(tallies, starts, strict=False)]),
        shown={n: np.concatenate([one.shown[n] for one in tallies]) for n in tallies[0].shown},
    )


# The tables of metrics that the gate checks: the columns of all subjects side by side.
#
# They are computed only from what is stored, not by the code that wrote it, so that they are about
# what a trainer will read. All metrics are whole numbers: no text of the data reaches the gate.


_HELP = "Fix the metrics of that subject."


def _checked(subject: str, name: str, values: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """A column of whole numbers, one for each example, row or file."""
    column = np.asarray(values)
    if column.dtype.kind not in "biu":
        raise errors.GateError(
            f"{subject} measures {name} as {column.dtype}; metrics are whole numbers or booleans.",
            _HELP,
        )
    if column.shape != (count,):
        raise errors.GateError(
            f"{subject} measures {name} for {column.shape} items; there are {count}.", _HELP
        )
    return column.astype(np.int64, copy=False)


def _measured(
    source: object, context: contract.Context, level: str, count: int
) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of all subjects at one level.

    Args:
        source: the object that ``Metrics.measure`` gets at this level.
        count: rows that the table must have.

    Raises:
        GateError: two subjects have a column of one name, or a column is not whole numbers.
    """
    columns: dict[str, npt.NDArray[np.int64]] = {}
    owner: dict[str, str] = {}
    for subject, metrics in metrics_of(context, level):
        for name, values in metrics.measure(source).items():
            if name in columns:
                raise errors.GateError(
                    f"{subject} measures {name}, and so does {owner[name]}.",
                    "Give the column of your subject another name.",
                )
            columns[name] = _checked(subject, name, values=values, count=count)
            owner[name] = subject
    return columns


def measured(rows: stored_rows.StoredRows, level: str) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of examples, or of training rows (packs, padded rows), as columns."""
    context = replace(rows.context, evidence=rows.evidence)
    count = len(rows) if level == contract.EXAMPLE else rows.table.num_rows
    return _measured(rows, context, level=level, count=count)


def of_index(rows: stored_rows.IndexRows) -> dict[str, npt.NDArray[np.int64]]:
    """The metrics of packs that are an index, as columns."""
    context = replace(rows.context, evidence=rows.evidence)
    return _measured(rows, context, level=contract.ROW, count=rows.table.num_rows)


def shard(file: stored_rows.ShardFile) -> dict[str, int]:
    """The metrics of one file."""
    columns = _measured(file, file.context, level=contract.SHARD, count=1)
    return {name: int(values[0]) for name, values in columns.items()}


def dataset(build: stored_rows.Dataset) -> pa.Table:
    """The one row of metrics of a whole build."""
    return pa.table(_measured(build, build.context, level=contract.DATASET, count=1))
