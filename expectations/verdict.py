"""The results of the gate: plain values, ready for ``validation.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from expectations.contract import SEVERITIES

SCHEMA_VERSION = 1
NAMED = 10  # rows that a finding names


@dataclass(frozen=True, slots=True)
class Judged:
    """One expectation over one table.

    Attributes:
        kwargs: its arguments, parameters resolved.
        broken: how many rows break it; 1 where it is about the table as a whole.
        observed: the observed value, where Great Expectations reports one.
        rows: the first of these rows, counted over the whole table.
    """

    type: str
    kwargs: Mapping[str, Any]
    passed: bool
    checked: int
    broken: int
    observed: object = None
    rows: tuple[int, ...] = ()

    def after(self, earlier: Judged | None) -> Judged:
        """This result added to that of earlier pieces of the table."""
        if earlier is None:
            return self
        return replace(
            self,
            passed=earlier.passed and self.passed,
            checked=earlier.checked + self.checked,
            broken=earlier.broken + self.broken,
            rows=(earlier.rows + self.rows)[:NAMED],
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one invariant, or of one expectation of a user's suite.

    Attributes:
        broken: how many rows of the table break any of its checks.
        rows: the first of them; ``seen``: the metrics of the very first.
        places: ``row``, ``shard`` and ``at`` of these rows.
    """

    name: str
    suite: str
    table: str
    severity: str
    why: str
    checked: int
    broken: int
    checks: tuple[Judged, ...]
    rows: tuple[int, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)
    places: tuple[Mapping[str, Any], ...] = ()

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def fatal(self) -> bool:
        return not self.passed and self.severity == "critical"

    def described(self) -> dict[str, Any]:
        """The finding as in ``validation.json``."""
        return {
            "name": self.name,
            "suite": self.suite,
            "table": self.table,
            "severity": self.severity,
            "passed": self.passed,
            "checked": self.checked,
            "broken": self.broken,
            "why": self.why,
            "checks": [
                {
                    "type": check.type,
                    "kwargs": dict(check.kwargs),
                    "passed": check.passed,
                    "broken": check.broken,
                    **({} if check.observed is None else {"observed": check.observed}),
                }
                for check in self.checks
            ],
            "rows": [dict(place) for place in self.places],
            "seen": dict(self.seen),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings, and whether the build may be published.

    Attributes:
        tables: how many rows of metrics each table has.
        dataset: the one row of the dataset table.
        results: the results of Great Expectations, for its own pages; not in ``validation.json``.
    """

    findings: tuple[Finding, ...]
    tables: Mapping[str, int]
    dataset: Mapping[str, int]
    results: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def passed(self) -> bool:
        return not any(finding.fatal for finding in self.findings)

    def summary(self) -> dict[str, Any]:
        """The number of expectations, and the broken ones by severity."""
        broken = [f for f in self.findings if not f.passed]
        return {
            "passed": self.passed,
            "judged": len(self.findings),
            "failed": {s: [f.name for f in broken if f.severity == s] for s in SEVERITIES},
        }

    def described(self) -> dict[str, Any]:
        """``validation.json``: without times and paths, so it is equal for equal builds."""
        return {
            "schema_version": SCHEMA_VERSION,
            "engine": "great_expectations",
            **self.summary(),
            "tables": dict(self.tables),
            "dataset": dict(self.dataset),
            "expectations": [finding.described() for finding in self.findings],
        }
