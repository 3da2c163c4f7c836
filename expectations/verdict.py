"""The results of the gate, and the verdict on a build."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from expectations.contract import SEVERITIES
from stages.findings import Finding, Validation

SCHEMA_VERSION = 1
NAMED = 10  # rows that a finding names


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

    def record(self) -> Validation:
        """The verdict as it is written down."""
        return Validation(
            SCHEMA_VERSION,
            "great_expectations",
            **self.summary(),
            tables=self.tables,
            dataset=self.dataset,
            expectations=self.findings,
        )
