"""Texts that training rows share with evaluation files: what is compared, an index, the hits.

Here is what a build compares its rows with, as its options say it; nothing heavy is imported.
"""

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


@dataclass(frozen=True, slots=True)
class Likeness:
    """What the likeness of two rows is estimated from.

    Attributes:
        size: words of a run.
        whole: rows are alike by all that they say; else by their questions alone.
        sides: rows with questions that are alike are on one side of a split.
    """

    size: int
    whole: bool = True
    sides: bool = False

    @property
    def columns(self) -> tuple[tuple[str, bool], ...]:
        """The columns of a part that it takes, each with whether all of a row is compared."""
        own = (("signature", self.whole),)
        return (*own, ("question_signature", False)) if self.sides and self.whole else own

    @property
    def by_question(self) -> str:
        """The column by which questions are alike."""
        return "question_signature" if self.whole else "signature"
