"""The search of a build's rows for the questions of its evaluations: a column of hits.

For every sequence and evaluation the column has the few questions of which it shares most, however
little that is: how much makes a hit is decided later, so that another limit reads nothing again.
"""

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stages import columns, contract, kinds, readers
from stages.columns import Ints
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash
from stages.normalize import overlap_words, signatures
from stages.normalize.overlap import Evaluation, Search
from stages.rows import words
from stages.rows.selection import lookup

NAME = "overlaps"
MOST = 4  # questions of one evaluation that are kept for a sequence
EXCERPT = 400  # characters of a text around what it shares


class Overlap(NamedTuple):
    """What a sequence shares with one question: an entry of the column.

    Attributes:
        item: the question's number over all evaluations.
        share: of its words; 1 where it is contained.
        contained: all of its letters and digits stand there side by side.
        match: the longest run of shared words; empty where only the letters are shared.
        said: the text around it.
    """

    item: int
    share: float
    contained: bool
    match: str
    said: str


class _Pair(NamedTuple):
    """A row and a question that share something; ``first``, ``stop``: the question's words that
    are the longest shared stretch."""

    row: int
    item: int
    share: float = 0.0
    contained: bool = False
    first: int = 0
    stop: int = 0


class Index:
    """Questions, ready to be found by their runs of so many words and by their letters."""

    def __init__(self, items: "Items", size: int) -> None:
        self._evaluation = items.evaluation
        self._runs = signatures.Runs(items.plain, items.evaluation, size)
        # As they are written too, since a text without spaces has no words that are numbers.
        both = (False, True)
        self._letters = [overlap_words.Letters(items.question, size, one) for one in both]

    def overlaps(self, texts: Sequence[str], rows: Ints) -> dict[int, list[Overlap]]:
        """What rows share with questions, by row, in the order of the questions.

        Args:
            rows: of each text, ascending.
        """
        found: dict[int, list[Overlap]] = {}
        count = int(rows[-1]) + 1 if len(rows) else 0
        for _, _, part in signatures.blocks(texts, rows, count):
            some, own = texts[part], rows[part]
            by_row: dict[int, list[_Pair]] = {}
            for pair in self._pairs(some, own):
                by_row.setdefault(pair.row, []).append(pair)
            for row, pairs in by_row.items():
                turns = [some[i] for i in np.flatnonzero(own == row).tolist()]
                found[row] = [self._overlap(pair, turns) for pair in self._best(pairs)]
        return found

    def _pairs(self, texts: Sequence[str], rows: Ints) -> list[_Pair]:
        """Every row and question that share something."""
        bare = [overlap_words.bare(text) for text in texts]
        spelled = [*map(overlap_words.numbers_in_words, bare)]
        blocks = [*map(overlap_words.joined, (bare, spelled))]
        every = blocks[1].split()
        ends = np.fromiter((word == overlap_words.END for word in every), bool, len(every))
        each = self._runs.shared(every, rows[np.cumsum(ends)])
        pairs = {(row, item): _Pair(row, item, share, False, *at) for row, item, share, *at in each}
        found = (letters.find(b, texts) for letters, b in zip(self._letters, blocks, strict=True))
        for text, item in chain.from_iterable(found):
            key = (int(rows[text]), item)
            pairs[key] = pairs.get(key, _Pair(*key))._replace(share=1.0, contained=True)
        return list(pairs.values())

    def _best(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """The pairs of one row of which most is shared, a few of each evaluation."""
        kept: dict[int, list[_Pair]] = {}
        for pair in sorted(pairs, key=lambda one: (-one.share, one.item)):
            kept.setdefault(self._evaluation[pair.item], []).append(pair)
        best = (one for some in kept.values() for one in some[:MOST])
        return sorted(best, key=lambda one: one.item)

    def _overlap(self, pair: _Pair, turns: Sequence[str]) -> Overlap:
        match = b" ".join(self._runs.words[pair.item][pair.first : pair.stop])
        said = _around(overlap_words.solid(match), overlap_words.plain, turns)
        if pair.contained:
            ways = (_around(one.solid[pair.item], one.spell, turns) for one in self._letters)
            said = next(filter(None, ways), said)
        said = said or shortened("\n\n".join(turns))
        return Overlap(pair.item, pair.share, pair.contained, shortened(match.decode()), said)


def shortened(text: str) -> str:
    """The beginning of a text that is longer."""
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _around(letters: bytes, spell: Callable[[str], bytes], turns: Sequence[str]) -> str:
    """The turn that has these letters, or as much of it around them as is shown; empty where none
    has."""
    for turn in turns:
        at = overlap_words.solid(spell(turn)).find(letters)
        if at < 0:
            continue
        if len(turn) <= EXCERPT:
            return turn
        before = overlap_words.letters_before(turn)
        place = bisect.bisect_right(before, at) - 1
        first = max(0, min(place - EXCERPT // 8, len(turn) - EXCERPT))
        last = first + EXCERPT
        return f"{'…' if first else ''}{turn[first:last]}{'…' if last < len(turn) else ''}"
    return ""


@functools.lru_cache(maxsize=2)
def index_of(search: Search) -> Index:
    """The index of a search, made once in a process.

    Raises:
        UsageError, SurroundingsError, ContainerError: see ``evaluations.read``.
    """
    return Index(items(search.evaluations), search.size)


def put(batch: contract.Batch, kind: kinds.Kind, search: Search) -> contract.Batch:
    """The batch with the column ``overlaps``: a list of hits, empty for almost every sequence."""
    texts, rows = signatures.compared_texts(batch, kind, search.whole)
    found = index_of(search).overlaps(texts, rows)
    values: list[Any] = [[] for _ in range(batch.num_rows)]
    for row, overlaps in found.items():
        values[row] = [overlap._asdict() for overlap in overlaps]
    return columns.put(batch, NAME, pa.array(values, columns.TYPES[NAME]))


# Evaluation files: the questions that no training row may ask.
#
# An evaluation is a file of JSON lines, JSON, Parquet or Arrow with a column of questions, or a
# text file with one question a line.


COLUMNS = words.listing("benchmark", "both")
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


def _question(row: contract.Row, columns: str) -> str | None:
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


def _rows(path: str) -> Iterator[tuple[int, contract.Row | None]]:
    """Every row with its line; None for one that cannot be read."""
    if path.lower().endswith(_TEXTS):
        written = file_hash.required(Path(path)).read_text("utf-8").split("\n")
        yield from ((at, {"text": text}) for at, text in enumerate(written, 1) if text.strip())
        return
    name = readers.of_path(path)
    if name is None:
        how = "Give JSON lines, JSON, Parquet or a text file with one question a line."
        raise UsageError(f"{path} is not an evaluation file: no reader knows its suffix.", how)
    for line, record in readers.numbered(readers.load(name).splits(path)):
        yield line, record.data


def _column(path: str, rows: list[tuple[int, contract.Row | None]]) -> str:
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
    what = f"{path} has no column with a known name for questions; its columns are: {found}."
    raise UsageError(what, f"Name it after a #, for example {path}#COLUMN.")


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
        what = f"{path} has no text in the column {column!r}."
        raise UsageError(what, f"Name another: {path}#COLUMN.")
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
    def of(cls, every: Sequence[Questions]) -> "Items":
        """Those of several evaluations."""
        question = [text or "" for one in every for text in one.texts]
        evaluation = [number for number, one in enumerate(every) for _ in one.lines]
        lines = [line for one in every for line in one.lines]
        plain = [*map(overlap_words.plain, question)]
        return cls(evaluation, lines, question, plain, columns=[one.column for one in every])

    def judged(self, item: int) -> bool:
        """Whether a question can be found: it has letters or digits."""
        return bool(self.plain[item].strip())


@functools.lru_cache(maxsize=2)
def items(evaluations: tuple[Evaluation, ...]) -> Items:
    """All questions, read once in a process; raises as ``read`` does."""
    return Items.of([read(one) for one in evaluations])
