"""What rows had in common with evaluation files: in the manifest, and each hit in a file."""

from __future__ import annotations

from dataclasses import dataclass

from stages.json_record import JsonRecord

CONTAMINATED = "contaminated.jsonl"
NEAR_DUPLICATES = "near_duplicates.jsonl"


@dataclass(frozen=True, slots=True)
class EvaluationRecord(JsonRecord):
    """One evaluation file.

    Attributes:
        column: that its questions were read from.
        questions: that rows were searched for; ``not_judged``: lines of it without letters and
            digits there, which can be found in no row.
        found: questions that some row was left out for; ``rows``, ``examples``: left out for them.
    """

    name: str
    sha256: str
    column: str
    questions: int
    not_judged: tuple[int, ...]
    found: int
    rows: int
    examples: int


@dataclass(frozen=True, slots=True)
class Decontamination(JsonRecord):
    """The manifest's ``decontamination``: how rows were compared with evaluation files.

    Attributes:
        words: of a run; ``share``: of a question's words in shared runs, more than which leaves a
            row out.
        compared: ``question`` or ``row``.
    """

    words: int
    share: float
    compared: str
    evaluations: tuple[EvaluationRecord, ...]


@dataclass(frozen=True, slots=True)
class Hit(JsonRecord):
    """A line of ``contaminated.jsonl``: an example that was left out, and a question for which.

    Attributes:
        id: as ``row_id`` has it.
        evaluation: its name; ``file``: its file's; ``line``: of the question there, from 1.
        share: of the question's words that are in shared runs; 1 where it is contained.
        contained: all letters and digits of the question stand in the row side by side.
        match: the longest shared run of words, as they were compared.
        said: the row's text around it; ``question``: the beginning of the question.
    """

    id: str
    evaluation: str
    file: str
    line: int
    share: float
    contained: bool
    match: str
    said: str
    question: str


@dataclass(frozen=True, slots=True)
class Likeness(JsonRecord):
    """The manifest's ``near_duplicates``: how rows were compared with each other.

    Attributes:
        likeness: from which on rows are alike; ``words``: of a run; ``compared``: ``row`` or
            ``question``.
        signatures: what made them.
        clusters: examples that stay for others; ``rows``, ``examples``: left out for them.
    """

    likeness: float
    words: int
    compared: str
    signatures: str
    clusters: int
    rows: int
    examples: int


@dataclass(frozen=True, slots=True)
class NearDuplicate(JsonRecord):
    """A line of ``near_duplicates.jsonl``: an example that was left out, and the one that stays.

    Attributes:
        id, kept: of both, as ``row_id`` has it.
        likeness: of the two, estimated; below the limit where others lie between them.
        said, kept_said: their texts from where they begin to differ, and a little before.
    """

    id: str
    kept: str
    likeness: float
    said: str
    kept_said: str
