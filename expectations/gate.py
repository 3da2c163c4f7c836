"""The gate: Great Expectations checks tables of metrics; what it cannot check does not pass.

The bare library passes an empty suite, an empty table, a column of nulls, and a suite from which it
dropped misspelt expectations. Here each of these is an error (``GateError``), every shipped
expectation is checked a second time in polars, and different results stop the build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from expectations.contract import Context, parameters
from expectations.gx.runner import HELP, Runner
from expectations.gx.suites import SHIPPED, DeclaredExpectation, Suite, columns_of
from expectations.invariants import applying
from expectations.verdict import NAMED, Finding, Judged, Verdict
from stages.errors import GateError

OPENS = "shards_open"  # checked first
CHUNK_ROWS = 1_000_000  # checked at once; shipped expectations are about single rows

Frames = Callable[[], Iterator[pl.DataFrame]]
Places = Callable[[str, Sequence[int]], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Table:
    """The metrics of one level.

    Attributes:
        rows: the number that there must be, counted by the code that wrote the shards.
        frames: reads them in order, in pieces.
    """

    name: str
    rows: int
    frames: Frames


def _require_sound(frame: pl.DataFrame, name: str) -> None:
    """Check for integers without nulls, since Great Expectations skips nulls and NaN."""
    for column, kind in frame.schema.items():
        if kind != pl.Int64:
            raise GateError(f"Column {column} of the {name} table is {kind}, not Int64.", HELP)
    empty = [c for c, nulls in zip(frame.columns, frame.null_count().row(0), strict=True) if nulls]
    if empty:
        raise GateError(f"The {name} table has nulls in {', '.join(empty)}.", HELP)


def _chunks(table: Table, limit: int) -> Iterator[pl.DataFrame]:
    """The table's rows, about ``limit`` at a time; an error if they are not as many as expected."""
    waiting: list[pl.DataFrame] = []
    count = seen = 0
    for frame in table.frames():
        _require_sound(frame, table.name)
        waiting.append(frame)
        count += len(frame)
        if count >= limit:
            yield pl.concat(waiting)
            seen, count, waiting = seen + count, 0, []
    if count:
        yield pl.concat(waiting)
    if seen + count != table.rows or not table.rows:
        raise GateError(
            f"The {table.name} table has {seen + count} rows, but {table.rows} were written.",
            HELP if table.rows else "The table has no rows, so nothing was published.",
        )


@dataclass(slots=True)
class _Law:
    """The result of polars for one invariant over all pieces.

    Attributes:
        broken: rows that break it; ``rows``: the first of them; ``seen``: metrics of the first.
        each: rows that break each of its checks.
    """

    broken: int = 0
    rows: tuple[int, ...] = ()
    seen: dict[str, int] = field(default_factory=dict)
    each: tuple[int, ...] = ()


def _second(frame: pl.DataFrame, context: Context, table: str, first: int) -> dict[str, _Law]:
    """Every shipped expectation a second time, in polars.

    Args:
        first: rows of the table before this piece.
    """
    bounds = parameters(context)
    results = {}
    for law in applying(context, table):
        checks = [check.bad(bounds).fill_null(True) for check in law.checks_for(context)]
        bad = frame.select(check.alias(str(i)) for i, check in enumerate(checks))
        any_bad = bad.select(pl.any_horizontal(pl.all()).alias("bad"))["bad"]
        rows = np.flatnonzero(any_bad.to_numpy())
        named = tuple((rows[:NAMED] + first).tolist())
        names = list(dict.fromkeys(c for k in law.checks_for(context) for c in k.columns))
        seen = frame.select(names).row(int(rows[0]), named=True) if len(rows) else {}
        each = tuple(int(n) for n in bad.sum().row(0))
        results[law.name] = _Law(broken=len(rows), rows=named, seen=seen, each=each)
    return results


def _shipped(
    runner: Runner, suite: Suite, table: Table, context: Context
) -> tuple[list[Finding], int]:
    """The shipped suite of a table, piece by piece, by Great Expectations and by polars."""
    bounds = parameters(context)
    definition = runner.definition(suite, bounds)
    names = columns_of(suite.expectations)
    total: list[Judged] = []
    laws: dict[str, _Law] = {}
    first = 0
    for chunk in _chunks(table, CHUNK_ROWS):
        missing = sorted(set(names) - set(chunk.columns))
        if missing:
            raise GateError(f"The {table.name} table has no columns {', '.join(missing)}.", HELP)
        judged = runner.run(
            definition, suite, parameters=bounds, frame=chunk.select(names), first=first
        )
        total = [f.after(total[i] if total else None) for i, f in enumerate(judged)]
        for name, seen in _second(chunk, context, table=table.name, first=first).items():
            before = laws.get(name, _Law(each=(0,) * len(seen.each)))
            each = tuple(a + b for a, b in zip(before.each, seen.each, strict=True))
            rows = (before.rows + seen.rows)[:NAMED]
            laws[name] = _Law(
                broken=before.broken + seen.broken,
                rows=rows,
                seen=before.seen or seen.seen,
                each=each,
            )
        first += len(chunk)
    findings = [_agreed(name, law, suite, total=total, checked=first) for name, law in laws.items()]
    return findings, first


def _agreed(name: str, law: _Law, suite: Suite, total: Sequence[Judged], checked: int) -> Finding:
    """The finding of one invariant.

    Raises:
        GateError: Great Expectations and polars have counted different rows.
    """
    mine = [i for i, declared in enumerate(suite.expectations) if declared.law == name]
    judged = tuple(total[i] for i in mine)
    if tuple(j.broken for j in judged) != law.each or any(
        j.passed == bool(j.broken) for j in judged
    ):
        raise GateError(
            f"Great Expectations and polars disagree on {name}: rows that break it are "
            f"{[j.broken for j in judged]} and {list(law.each)}.",
            "Nothing was published; please report it with the recipe.",
        )
    declared = suite.expectations[mine[0]]
    return Finding(
        name=name,
        suite=SHIPPED,
        table=suite.table,
        severity=declared.severity,
        why=declared.why,
        checked=checked,
        broken=law.broken,
        checks=judged,
        rows=law.rows,
        seen=law.seen,
    )


def _users(
    runner: Runner, suite: Suite, table: Table, context: Context
) -> tuple[list[Finding], int]:
    """A user's suite, over the whole table at once, since it may be about means or uniqueness."""
    bounds = parameters(context)
    definition = runner.definition(suite, bounds)
    frame = pl.concat(_chunks(table, CHUNK_ROWS))
    _require_columns(suite.expectations, frame, suite)
    judged = runner.run(definition, suite, parameters=bounds, frame=frame, first=0)
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
    declared: Sequence[DeclaredExpectation], frame: pl.DataFrame, suite: Suite
) -> None:
    missing = sorted(set(columns_of(declared)) - set(frame.columns))
    if missing:
        raise GateError(
            f"Suite {suite.name} uses columns {', '.join(missing)}, which the {suite.table} table "
            "does not have.",
            f"Its columns: {', '.join(frame.columns)}.",
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
        dataset = only.row(0, named=True)
    return Verdict(
        findings=tuple(placed), tables=counts, dataset=dataset, results=tuple(runner.results)
    )
