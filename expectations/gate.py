"""The gate: Great Expectations judges tables of metrics; what it cannot judge does not pass.

The bare library passes an empty suite, an empty table, a column of nulls, and a suite from which it
dropped misspelt expectations. Here each of these is an error (``GateError``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from expectations import gx_suites, invariants, stored_rows, tallies
from expectations.contract import EXAMPLE, STREAM, Check, Context, Invariant, parameters
from expectations.gx_runner import HELP, Runner
from stages import columns, contract, errors
from stages.chat_template import loss_weights
from stages.findings import NAMED, Finding, Judged, Validation
from stages.tokens.folded_labels import unfold

OPENS = "shards_open"  # checked first

Frames = Callable[[], Iterator[pa.Table]]
Places = Callable[[str, Sequence[int]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Table:
    """The metrics of one level.

    Attributes:
        rows: how many it has.
        frames: reads them in order, in pieces.
        at: the numbers of the rows that the frames have, where these decide for all; None: all.
    """

    name: str
    rows: int
    frames: Frames
    at: columns.Ints | None = None


def _require_sound(frame: pa.Table, name: str) -> None:
    """Check for integers without nulls, since Great Expectations skips nulls and NaN."""
    for column in frame.schema:
        if column.type != pa.int64():
            raise errors.GateError(
                f"Column {column.name} of the {name} table is {column.type}, not int64.", HELP
            )
    empty = [name for name in frame.column_names if frame[name].null_count]
    if empty:
        raise errors.GateError(f"The {name} table has nulls in {', '.join(empty)}.", HELP)


def _frame_of(table: Table) -> pa.Table:
    """The rows of a table that are judged; an error if they are not as many as expected."""
    frames = list(table.frames())
    for frame in frames:
        _require_sound(frame, table.name)
    count, wanted = sum(map(len, frames)), table.rows if table.at is None else len(table.at)
    if count != wanted or not count:
        raise errors.GateError(
            f"The {table.name} table has {count} rows, but {wanted} were written.",
            HELP if wanted else "The table has no rows, so nothing was published.",
        )
    return pa.concat_tables(frames)


def _findings(
    runner: Runner, suite: gx_suites.Suite, table: Table, context: Context, places: Places
) -> Iterator[Finding]:
    """The findings of a suite: one for each law that is shipped, or for each expectation."""
    frame, names = _frame_of(table), gx_suites.columns_of(suite.expectations)
    missing = sorted(set(names) - set(frame.column_names))
    if missing:
        raise errors.GateError(
            f"Suite {suite.name} uses columns {', '.join(missing)}, which the {suite.table} table "
            "does not have.",
            f"Its columns: {', '.join(frame.column_names)}.",
        )
    ours = suite.name.startswith(gx_suites.SHIPPED)
    shown = frame.select(names) if ours else frame  # an expectation of a user may look at any
    judged = runner.run(suite, parameters(context), frame=shown)
    every = enumerate(zip(suite.expectations, judged, strict=True))
    for _, some in groupby(every, lambda one: one[1][0].law if ours else one[0]):
        declared, found = zip(*(pair for _, pair in some), strict=True)
        finding, rows = _finding(declared, found, suite, table)
        if rows:
            at = rows if table.at is None else table.at[rows].tolist()
            used = gx_suites.columns_of(declared) if ours else ()
            seen = {name: frame[name][rows[0]].as_py() for name in used}
            finding = replace(finding, rows=tuple(places(suite.table, at)), seen=seen)
        yield finding


def _finding(
    declared: Sequence[gx_suites.DeclaredExpectation],
    judged: Sequence[tuple[Judged, tuple[int, ...]]],
    suite: gx_suites.Suite,
    table: Table,
) -> tuple[Finding, list[int]]:
    """What one or several checks of one name found, and the first rows that break one of them."""
    ours = suite.name.startswith(gx_suites.SHIPPED)
    checks = tuple(check for check, _ in judged)
    rows = sorted({row for _, found in judged for row in found})
    finding = Finding(
        name=declared[0].law,
        suite=gx_suites.SHIPPED if ours else suite.name,
        table=suite.table,
        severity=declared[0].severity,
        passed=all(check.passed for check in checks),
        checked=table.rows,
        broken=max(len(rows), *(check.broken for check in checks)),
        why=declared[0].why,
        checks=checks,
    )
    return finding, rows[:NAMED]


def judge(
    tables: Mapping[str, Table],
    suites: Sequence[gx_suites.Suite],
    context: Context,
    places: Places,
    runner: Runner | None = None,
) -> Validation:
    """Judge tables of metrics by suites.

    Args:
        suites: shipped ones and users'.
        places: gives shard and position of rows of a table, for the findings.
        runner: keeps the results of Great Expectations for its own pages.

    Raises:
        GateError: something could not be judged, so there is no verdict.
    """
    if not suites:
        raise errors.GateError("There is no suite to check against.", HELP)
    runner = runner or Runner()
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for suite in suites:
        if suite.table not in tables:
            raise errors.GateError(
                f"Suite {suite.name} needs a {suite.table} table; this layout has none.", HELP
            )
        table = tables[suite.table]
        found = list(_findings(runner, suite, table, context, places))
        counts[suite.table] = table.rows
        findings += found
        if any(finding.fatal and finding.name == OPENS for finding in found):
            break  # a shard that does not open has no rows to check
    dataset: dict[str, int] = {}
    if "dataset" in counts:
        (dataset,) = _frame_of(tables["dataset"]).slice(0, 1).to_pylist()
    return Validation.of(findings, counts, dataset)


# The stage that checks the invariants on every row while a part is made; see also ``gate``.


@dataclass
class Validate:
    """Refuses every row that breaks an invariant, with the name of the first one as code."""

    context: Context
    name: str = "validate"
    writes: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        kind = self.context.kind
        return (*kind.ids, "labels") if kind.labelled else kind.ids

    @cached_property
    def _laws(self) -> list[tuple[Invariant, tuple[Check, ...]]]:
        context = replace(self.context, layout=STREAM)
        laws = invariants.applying(context, EXAMPLE)
        # Invariants that are only checked here come last: the first that breaks gives the code.
        laws.sort(key=lambda law: STREAM in law.needs)
        return [(law, law.checks_for(context)) for law in laws]

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        if not self._laws or not batch.num_rows:
            return batch
        context = replace(self.context, layout=STREAM)
        stored = loss_weights.stored(unfold(pa.table(batch)))
        metrics = tallies.measured(stored_rows.StoredRows(stored, context), EXAMPLE)
        bounds = parameters(context)
        for law, checks in self._laws:
            bad = np.logical_or.reduce([check.broken(metrics, bounds) for check in checks])
            if bad.any():
                details = [law.why] * int(bad.sum())
                batch = columns.refuse(batch, bad, law.name, details)
        return batch
