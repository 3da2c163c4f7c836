"""Evaluation files: the questions that no training row may ask.

An evaluation is a file of JSON lines, JSON, Parquet or Arrow with a column of questions, or a text
file with one question a line.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import readers
from stages.contract import Row
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash
from stages.overlap import words
from stages.overlap.settings import Evaluation
from stages.rows.selection import lookup

# The columns that benchmarks have their questions in; the first that is there is read.
COLUMNS = (
    "question Question problem Problem prompt Prompt instruction query input_text ctx goal stem "
    "input sentence premise turns messages conversations text content"
).split()
JOINED = "+"  # between the names of columns that are one question together
_WITH = {"instruction": "input"}  # a column that is a question together with another
_TEXTS = (".txt", ".md", ".text")
_ANSWERS = ("assistant", "gpt", "model", "bot")
_LOOKED_AT = 64  # rows that say which column has the questions


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of one evaluation.

    Attributes:
        column: that they were read from.
        lines: of each, from 1; ``texts``: None where a row has no question.
    """

    column: str
    lines: tuple[int, ...]
    texts: tuple[str | None, ...]


def _question(row: Row, columns: str) -> str | None:
    """What a row asks: the text of a column, or of several that are joined with a ``+``."""
    if columns in row or JOINED not in columns:
        return _text(lookup(row, columns))
    texts = [_text(lookup(row, name)) for name in columns.split(JOINED)]
    return "\n\n".join(text for text in texts if text) or None


def _text(value: Any) -> str | None:
    """A question as text: itself, or what is said to the model in a list of turns."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    said = []
    for turn in value:
        if isinstance(turn, dict):
            role = turn.get("role", turn.get("from"))
            turn = None if role in _ANSWERS else turn.get("content", turn.get("value"))
        if isinstance(turn, str):
            said.append(turn)
    return "\n\n".join(said) or None


def _rows(path: str) -> Iterator[tuple[int, Row | None]]:
    """Every row with its line; None for one that cannot be read."""
    if path.lower().endswith(_TEXTS):
        for number, text in enumerate(
            file_hash.required(Path(path)).read_text("utf-8").split("\n"), 1
        ):
            if text.strip():
                yield number, {"text": text}
        return
    name = readers.of_path(path)
    if name is None:
        raise UsageError(
            f"{path} is no evaluation file: no reader is for its name.",
            "Give JSON lines, JSON, Parquet or a text file with one question a line.",
        )
    line = 1  # of the split's first row
    for split in readers.load(name).splits(path):
        count = 0
        for lines in readers.load(split.reader).read(split):
            for record in lines.records:
                yield line + record.line, record.data
            count += lines.lines
        line += count


def _column(path: str, rows: list[tuple[int, Row | None]]) -> str:
    """The column of the questions.

    Raises:
        UsageError: none is known to have questions.
    """
    looked = [row for _, row in rows[:_LOOKED_AT] if row]
    for name in COLUMNS:
        if any(_text(row.get(name)) for row in looked):
            other = _WITH.get(name, "")
            return f"{name}{JOINED}{other}" if any(row.get(other) for row in looked) else name
    found = ", ".join(dict.fromkeys(name for row in looked for name in row)) or "none"
    raise UsageError(
        f"{path} has no column that is known to have questions; its columns are: {found}.",
        f"Name it behind a #, for example {path}#COLUMN.",
    )


def read(evaluation: Evaluation) -> Questions:
    """The questions of an evaluation.

    Raises:
        UsageError: it has no column of questions, or none of that name.
        SurroundingsError: its bytes are no longer those that were hashed.
        ContainerError: it is damaged.
    """
    path = evaluation.path
    if file_hash.sha256(path) != evaluation.sha256:
        raise SurroundingsError(f"{path} changed during the build.", "Run the build again.")
    rows = list(_rows(path))
    written = path.lower().endswith(_TEXTS)
    column = "text" if written else evaluation.column or _column(path, rows)
    texts = tuple(_question(row, column) if row is not None else None for _, row in rows)
    if rows and not any(texts):
        raise UsageError(
            f"{path} has no text in the column {column!r}.", f"Name another: {path}#COLUMN."
        )
    return Questions(column, tuple(line for line, _ in rows), texts)


@dataclass(frozen=True, slots=True)
class Items:
    """The questions of several evaluations, one after another; one that is missing is empty.

    Attributes:
        evaluation: number of the evaluation of each; ``line``: its line there, from 1.
        question: as it is written; ``plain``: in words that can be compared (``words.plain``).
        columns: that the questions of each evaluation were read from.
    """

    evaluation: Sequence[int]
    line: Sequence[int]
    question: Sequence[str]
    plain: Sequence[bytes]
    columns: Sequence[str]

    @classmethod
    def of(cls, every: Sequence[Questions]) -> Items:
        """Those of several evaluations."""
        question = [text or "" for one in every for text in one.texts]
        return cls(
            evaluation=[number for number, one in enumerate(every) for _ in one.lines],
            line=[line for one in every for line in one.lines],
            question=question,
            plain=[words.plain(text) for text in question],
            columns=[one.column for one in every],
        )

    def judged(self, item: int) -> bool:
        """Whether a question can be found: it has letters or digits."""
        return bool(self.plain[item].strip())


@functools.lru_cache(maxsize=2)
def items(evaluations: tuple[Evaluation, ...]) -> Items:
    """All questions, read once in a process; raises as ``read`` does."""
    return Items.of([read(one) for one in evaluations])
