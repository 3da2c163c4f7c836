"""Tables of metrics, and what is kept in place of one: sums, and the rows that decide.

A table has a row for every example of a shard. Where the shard is, the sums of all columns are
taken, and of each number that a law bounds the rows with the lowest and the highest values. A check
holds for all rows exactly if it holds for these, so Great Expectations is shown these alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import contract, invariants, stored_rows, undo_layout
from stages import columns, errors, findings


@dataclass(frozen=True, slots=True)
class Tally:
    """One table of metrics, or several one after another.

    Attributes:
        rows: how many rows it has.
        sums: of every column.
        at: the numbers of the rows that decide; ``shown``: their metrics, of the columns that laws
            use.
    """

    rows: int
    sums: Mapping[str, int]
    at: columns.Ints
    shown: contract.Values


Checks = Sequence[contract.Check]


def checks_of(context: contract.Context, level: str) -> Checks:
    """Each check of the laws that apply to a table, once."""
    laws = invariants.applying(context, level)
    return list(dict.fromkeys(check for law in laws for check in law.checks_for(context)))


def _lowest(values: columns.Ints) -> columns.Ints:
    """As many rows as a finding names, with the lowest values; of equal ones the first."""
    most = findings.NAMED
    if len(values) <= most:
        return np.arange(len(values))
    edge = np.partition(values, most - 1)[most - 1]
    below = np.flatnonzero(values < edge)
    return np.concatenate([below, np.flatnonzero(values == edge)[: most - len(below)]])


def _deciding(metrics: contract.Values, checks: Checks) -> columns.Ints:
    """The rows that decide whether checks hold for all rows."""
    each = [check.deciding(metrics) for check in checks]
    # The bits of a number inverted: the order turned round, where a minus could overflow.
    ends = [_lowest(values) for one in each for values in (one, ~one)]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *ends]))


def tally(metrics: contract.Values, checks: Checks) -> Tally:
    """What is kept of a table.

    Raises:
        GateError: it has not all columns that the checks use.
    """
    names = list(dict.fromkeys(name for check in checks for name in check.columns))
    missing = sorted(set(names) - metrics.keys())
    if missing:
        raise errors.GateError(
            f"No metric is called {', '.join(missing)}, which a law uses.", "Nothing was published."
        )
    at = _deciding(metrics, checks)
    return Tally(
        rows=len(next(iter(metrics.values()))),
        sums={name: int(values.sum()) for name, values in metrics.items()},
        at=at,
        shown={name: metrics[name][at] for name in names},
    )


def joined(tallies: Sequence[Tally], checks: Checks) -> Tally:
    """Tables of one level, one after another, as one: at least one."""
    starts = np.cumsum([0, *(one.rows for one in tallies)])
    at = np.concatenate([one.at + start for one, start in zip(tallies, starts, strict=False)])
    names = tallies[0].shown
    shown = {name: np.concatenate([one.shown[name] for one in tallies]) for name in names}
    kept = _deciding(shown, checks)
    return Tally(
        rows=int(starts[-1]),
        sums={name: sum(one.sums[name] for one in tallies) for name in tallies[0].sums},
        at=at[kept],
        shown={name: values[kept] for name, values in shown.items()},
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
    for subject, metrics in invariants.metrics_of(context, level):
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


def of_index(rows: undo_layout.IndexRows) -> dict[str, npt.NDArray[np.int64]]:
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
