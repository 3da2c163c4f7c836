"""What ``check`` found: faults, each with its place, and what could not be looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from expectations.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not as it was built: where, a stable word for it, and what."""

    where: str
    code: str
    detail: str


@dataclass
class Checked:
    """What was found.

    Attributes:
        notes: what could not be looked at, and why.
    """

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    rows_made_again: int = 0

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
            "rows_made_again": self.rows_made_again,
        }
