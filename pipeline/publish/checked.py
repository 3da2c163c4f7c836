"""The result of ``pipeline check``: faults, each with its place, and what could not be checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from expectations.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Fault:
    """One difference from what was built: the place, a stable code, and a sentence."""

    where: str
    code: str
    detail: str


@dataclass
class Checked:
    """The result of a check.

    Attributes:
        notes: what could not be checked, and why.
        expectations: by which the build was judged; ``verdict`` is about those of them that can
            be judged from the finished build alone.
        rows_made_again: examples that were rebuilt from the source.
    """

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    rows_made_again: int = 0
    expectations: int = 0

    def add(self, where: str, code: str, detail: str) -> None:
        """One more fault."""
        self.faults.append(Fault(where, code, detail))

    def described(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        judged = self.verdict.summary() if self.verdict else None
        return {
            "passed": not self.faults,
            "faults": [{"where": f.where, "code": f.code, "detail": f.detail} for f in self.faults],
            "notes": self.notes,
            "validation": judged,
            "expectations": self.expectations,
            "rows_made_again": self.rows_made_again,
        }
