"""What a build compares its rows with, as its options say it. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation file.

    Attributes:
        name: what hits are counted under.
        path: as it can be opened; ``sha256``: of its bytes.
        column: that has the questions, as it was named; None to detect it.
    """

    name: str
    path: str
    sha256: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """What rows are searched for, and where.

    Attributes:
        size: words of a run.
        whole: everything that a row says is searched, not its questions alone.
    """

    evaluations: tuple[Evaluation, ...]
    size: int
    whole: bool = False

    @property
    def content(self) -> dict[str, object]:
        """What the hits of a row depend on, ready for JSON."""
        files = [[one.sha256, one.column] for one in self.evaluations]
        return {"evaluations": files, "words": self.size, "whole": self.whole}
