"""The gate: Great Expectations checks tables of metrics; what it cannot check does not pass.

The bare library passes an empty suite, an empty table, a column of nulls, and a suite from which it
dropped misspelt expectations. Here each of these is an error (``GateError``). Every shipped
expectation is also checked by our own code, on the same rows and, where these stand for a larger
table, on all rows of that; different results stop the build.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from expectations import gx_suites, stored_rows, tallies
from expectations.contract import EXAMPLE, STREAM, Check, Context, Invariant, parameters
from expectations.gx_runner import HELP, Runner
from expectations.invariants import applying
from expectations.tallies import Broken, Laws, Tally
from stages import columns, contract, errors
from stages.chat_template import loss_weights
from stages.findings import Finding, Judged, Verdict
from stages.tokens.folded_labels import unfold

OPENS = "shards_open"  # checked first

Frames = Callable[[], Iterator[pa.Table]]
Places = Callable[[str, Sequence[int]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Table:
    """The metrics of one level.

    Attributes:
        rows: how many the frames must have together.
        frames: reads them in order, in pieces.
        tally: what our own code found in all rows, where that is known; the frames may then have
            only the telling ones.
    """

    name: str
    rows: int
    frames: Frames
    tally: Tally | None = None


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


def _rows_of(table: Table) -> pa.Table:
    """All rows of a table; an error if they are not as many as expected."""
    frames = list(table.frames())
    for frame in frames:
        _require_sound(frame, table.name)
    count = sum(map(len, frames))
    if count != table.rows or not table.rows:
        raise errors.GateError(
            f"The {table.name} table has {count} rows, but {table.rows} were written.",
            HELP if table.rows else "The table has no rows, so nothing was published.",
        )
    return pa.concat_tables(frames)


def _run(
    runner: Runner, suite: gx_suites.Suite, table: Table, context: Context, places: Places
) -> tuple[list[Finding], int]:
    """The findings of a suite, and how many rows they are about."""
    frame, names = _rows_of(table), gx_suites.columns_of(suite.expectations)
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
    if ours:
        metrics = {name: frame[name].to_numpy() for name in frame.column_names}
        mine = Laws(context, table.name).tally(metrics)
        whole = table.tally or mine
        return list(_of_laws(suite, judged, mine, whole, context, places)), whole.rows
    findings = [
        Finding(
            name=declared.law,
            suite=suite.name,
            table=suite.table,
            severity=declared.severity,
            passed=check.passed,
            checked=len(frame),
            broken=check.broken,
            why=declared.why,
            checks=(check,),
            rows=tuple(places(suite.table, rows)) if rows else (),
        )
        for declared, (check, rows) in zip(suite.expectations, judged, strict=True)
    ]
    return findings, len(frame)


def _of_laws(
    suite: gx_suites.Suite,
    judged: Sequence[tuple[Judged, tuple[int, ...]]],
    mine: Tally,
    whole: Tally,
    context: Context,
    places: Places,
) -> Iterator[Finding]:
    """The findings of a shipped suite, one for each law that its expectations are of.

    Args:
        mine: our own counts, of the rows that Great Expectations has judged; ``whole``: of all.
    """
    for law in applying(context, suite.table):
        found = whole.laws[law.name]
        declared = zip(suite.expectations, judged, strict=True)
        checks = [check for one, (check, _) in declared if one.law == law.name]
        _require_agreed(law.name, checks, mine.laws[law.name], found)
        yield Finding(
            name=law.name,
            suite=gx_suites.SHIPPED,
            table=suite.table,
            severity=law.severity,
            passed=not found.count,
            checked=whole.rows,
            broken=found.count,
            why=law.why,
            checks=tuple(replace(j, broken=n) for j, n in zip(checks, found.each, strict=True)),
            rows=tuple(places(suite.table, found.rows)) if found.rows else (),
            seen=whole.seen(law, context),
        )


def _require_agreed(name: str, judged: Sequence[Judged], mine: Broken, whole: Broken) -> None:
    """Check that Great Expectations and our own code come to the same result.

    Args:
        mine: our own counts, of the rows that Great Expectations has judged; ``whole``: of all.

    Raises:
        GateError: they do not.
    """
    theirs = tuple(one.broken for one in judged)
    agreed = theirs == mine.each and all(one.passed != bool(one.broken) for one in judged)
    if not agreed or [bool(n) for n in theirs] != [bool(n) for n in whole.each]:
        raise errors.GateError(
            f"Great Expectations and our own code disagree on {name}: rows that break it are "
            f"{list(theirs)} and {list(mine.each)}, in all {list(whole.each)}.",
            "Nothing was published; please report it with the recipe.",
        )


def judge(
    tables: Mapping[str, Table], suites: Sequence[gx_suites.Suite], context: Context, places: Places
) -> Verdict:
    """Check tables of metrics by suites, every table to its last row.

    Args:
        suites: shipped ones and users'.
        places: gives shard and position of rows of a table, for the findings.

    Raises:
        GateError: something could not be checked, so there is no verdict.
    """
    if not suites:
        raise errors.GateError("There is no suite to check against.", HELP)
    runner = Runner()
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for suite in suites:
        if suite.table not in tables:
            raise errors.GateError(
                f"Suite {suite.name} needs a {suite.table} table; this layout has none.", HELP
            )
        table = tables[suite.table]
        suite_findings, counts[suite.table] = _run(runner, suite, table, context, places)
        findings += suite_findings
        if any(finding.fatal and finding.name == OPENS for finding in suite_findings):
            break  # a shard that does not open has no rows to check
    dataset: dict[str, int] = {}
    if "dataset" in counts:
        (dataset,) = _rows_of(tables["dataset"]).slice(0, 1).to_pylist()
    return Verdict(
        findings=tuple(findings), tables=counts, dataset=dataset, results=tuple(runner.results)
    )


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
        laws = applying(context, EXAMPLE)
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
