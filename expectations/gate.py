"""The gate: Great Expectations checks tables of metrics; what it cannot check does not pass.

The bare library passes an empty suite, an empty table, a column of nulls, and a suite from which it
dropped misspelt expectations. Here each of these is an error (``GateError``). Every shipped
expectation is also checked by our own code, on the same rows and, where these stand for a larger
table, on all rows of that; different results stop the build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from expectations import tallies
from expectations.contract import Context, Invariant, parameters
from expectations.gx_runner import HELP, Runner
from expectations.gx_suites import SHIPPED, DeclaredExpectation, Suite, columns_of
from expectations.invariants import applying
from expectations.tallies import Laws, Tally
from expectations.verdict import Finding, Judged, Verdict
from stages.errors import GateError

OPENS = "shards_open"  # checked first
CHUNK_ROWS = 1_000_000  # checked at once; shipped expectations are about single rows

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
            raise GateError(
                f"Column {column.name} of the {name} table is {column.type}, not int64.", HELP
            )
    empty = [name for name in frame.column_names if frame[name].null_count]
    if empty:
        raise GateError(f"The {name} table has nulls in {', '.join(empty)}.", HELP)


def _chunks(table: Table, limit: int) -> Iterator[pa.Table]:
    """The table's rows, about ``limit`` at a time; an error if they are not as many as expected."""
    waiting: list[pa.Table] = []
    count = seen = 0
    for frame in table.frames():
        _require_sound(frame, table.name)
        waiting.append(frame)
        count += len(frame)
        if count >= limit:
            yield pa.concat_tables(waiting)
            seen, count, waiting = seen + count, 0, []
    if count:
        yield pa.concat_tables(waiting)
    if seen + count != table.rows or not table.rows:
        raise GateError(
            f"The {table.name} table has {seen + count} rows, but {table.rows} were written.",
            HELP if table.rows else "The table has no rows, so nothing was published.",
        )


def _shipped(
    runner: Runner, suite: Suite, table: Table, context: Context
) -> tuple[list[Finding], int]:
    """The shipped suite of a table, piece by piece, by Great Expectations and by our own code."""
    bounds = parameters(context)
    loaded = runner.load(suite, bounds)
    names = columns_of(suite.expectations)
    laws = Laws(context, table.name)
    total: list[Judged] = []
    counted: list[Tally] = []
    first = 0
    for chunk in _chunks(table, CHUNK_ROWS):
        metrics = {name: chunk[name].to_numpy() for name in chunk.column_names}
        counted.append(laws.tally(metrics))
        judged = runner.run(
            loaded, suite, parameters=bounds, frame=chunk.select(names), first=first
        )
        total = [f.after(total[i] if total else None) for i, f in enumerate(judged)]
        first += len(chunk)
    mine = tallies.joined(counted)
    found = (mine, table.tally or mine)
    findings = [
        _finding(law, found, suite, total, context) for law in applying(context, table.name)
    ]
    return findings, found[1].rows


def _of(name: str, suite: Suite, total: Sequence[Judged]) -> tuple[Judged, ...]:
    """The results of the checks of one invariant."""
    declared = zip(suite.expectations, total, strict=True)
    return tuple(judged for one, judged in declared if one.law == name)


def _finding(
    law: Invariant,
    found: tuple[Tally, Tally],
    suite: Suite,
    total: Sequence[Judged],
    context: Context,
) -> Finding:
    """The finding of one invariant.

    Args:
        found: our own counts, of the rows that Great Expectations has judged and of all rows.

    Raises:
        GateError: the results are not the same.
    """
    judged = _of(law.name, suite, total)
    mine, whole = (one.laws[law.name] for one in found)
    theirs = tuple(one.broken for one in judged)
    agreed = theirs == mine.each and all(one.passed != bool(one.broken) for one in judged)
    if not agreed or [bool(n) for n in theirs] != [bool(n) for n in whole.each]:
        raise GateError(
            f"Great Expectations and our own code disagree on {law.name}: rows that break it are "
            f"{list(theirs)} and {list(mine.each)}, in all {list(whole.each)}.",
            "Nothing was published; please report it with the recipe.",
        )
    return Finding(
        name=law.name,
        suite=SHIPPED,
        table=suite.table,
        severity=law.severity,
        why=law.why,
        checked=found[1].rows,
        broken=whole.count,
        checks=tuple(replace(j, broken=n) for j, n in zip(judged, whole.each, strict=True)),
        rows=whole.rows,
        seen=found[1].seen(law, context),
    )


def _users(
    runner: Runner, suite: Suite, table: Table, context: Context
) -> tuple[list[Finding], int]:
    """A user's suite, over the whole table at once, since it may be about means or uniqueness."""
    bounds = parameters(context)
    loaded = runner.load(suite, bounds)
    frame = pa.concat_tables(_chunks(table, CHUNK_ROWS))
    _require_columns(suite.expectations, frame, suite)
    judged = runner.run(loaded, suite, parameters=bounds, frame=frame, first=0)
    findings = [
        Finding(
            name=declared.law,
            suite=suite.name,
            table=suite.table,
            severity=declared.severity,
            why=declared.why,
            checked=len(frame),
            broken=result.broken,
            checks=(result,),
            rows=result.rows,
        )
        for declared, result in zip(suite.expectations, judged, strict=True)
    ]
    return findings, len(frame)


def _require_columns(
    declared: Sequence[DeclaredExpectation], frame: pa.Table, suite: Suite
) -> None:
    missing = sorted(set(columns_of(declared)) - set(frame.column_names))
    if missing:
        raise GateError(
            f"Suite {suite.name} uses columns {', '.join(missing)}, which the {suite.table} table "
            "does not have.",
            f"Its columns: {', '.join(frame.column_names)}.",
        )


def judge(
    tables: Mapping[str, Table],
    suites: Sequence[Suite],
    context: Context,
    places: Places,
) -> Verdict:
    """Check tables of metrics by suites, every table to its last row.

    Args:
        suites: shipped ones and users'.
        places: gives shard and position of rows of a table, for the findings.

    Raises:
        GateError: something could not be checked, so there is no verdict.
    """
    if not suites:
        raise GateError("There is no suite to check against.", HELP)
    runner = Runner()
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    for suite in suites:
        if suite.table not in tables:
            raise GateError(
                f"Suite {suite.name} needs a {suite.table} table; this layout has none.", HELP
            )
        run = _shipped if suite.name.startswith(SHIPPED) else _users
        suite_findings, counts[suite.table] = run(runner, suite, tables[suite.table], context)
        findings += suite_findings
        if any(finding.fatal and finding.name == OPENS for finding in suite_findings):
            break  # a shard that does not open has no rows to check
    placed = [replace(f, places=tuple(places(f.table, f.rows))) if f.rows else f for f in findings]
    dataset: dict[str, int] = {}
    if "dataset" in counts:
        (only,) = _chunks(tables["dataset"], 1)
        (dataset,) = only.slice(0, 1).to_pylist()
    return Verdict(
        findings=tuple(placed), tables=counts, dataset=dataset, results=tuple(runner.results)
    )
