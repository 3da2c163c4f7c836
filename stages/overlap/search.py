"""The search of a build's rows for the questions of its evaluations: a column of hits.

For every sequence and evaluation the column has the few questions of which it shares most, however
little that is: how much makes a hit is decided later, so that another limit reads nothing again.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import Ints
from stages.contract import Batch
from stages.kinds import Kind
from stages.overlap import evaluations, signatures, words
from stages.overlap.evaluations import Items
from stages.overlap.settings import Search
from stages.overlap.signatures import Runs
from stages.overlap.words import Letters, numbers_in_words

NAME = "overlaps"
MOST = 4  # questions of one evaluation that are kept for a sequence
EXCERPT = 400  # characters of a text around what it shares
_BLOCK = 1 << 18  # characters that are searched at once: what is made of them stays in the cache


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

    def __init__(self, items: Items, size: int) -> None:
        self._evaluation = items.evaluation
        self._runs = Runs(items.plain, items.evaluation, size)
        # As they are written too, since a text without spaces has no words that are numbers.
        self._letters = [Letters(items.question, size, numbers) for numbers in (False, True)]

    def overlaps(self, texts: Sequence[str], rows: Ints) -> dict[int, list[Overlap]]:
        """What rows share with questions, by row, in the order of the questions.

        Args:
            rows: of each text, ascending.
        """
        found: dict[int, list[Overlap]] = {}
        for first, last in _blocks(texts, rows):
            some, own = texts[first:last], rows[first:last]
            by_row: dict[int, list[_Pair]] = {}
            for pair in self._pairs(some, own):
                by_row.setdefault(pair.row, []).append(pair)
            for row, pairs in by_row.items():
                turns = [some[i] for i in np.flatnonzero(own == row).tolist()]
                found[row] = [self._overlap(pair, turns) for pair in self._best(pairs)]
        return found

    def _pairs(self, texts: Sequence[str], rows: Ints) -> list[_Pair]:
        """Every row and question that share something."""
        bare = [words.bare(text) for text in texts]
        blocks = [words.joined(bare), words.joined(map(numbers_in_words, bare))]
        every = blocks[1].split()
        ends = np.fromiter((word == words.END for word in every), bool, len(every))
        shared = self._runs.shared(every, rows[np.cumsum(ends)])
        numbers = (shared.row, shared.item, shared.share, shared.first, shared.stop)
        pairs = {
            (row, item): _Pair(row, item, share, False, first, stop)
            for row, item, share, first, stop in zip(*(a.tolist() for a in numbers), strict=True)
        }
        found = (letters.find(b, texts) for letters, b in zip(self._letters, blocks, strict=True))
        for text, item in chain.from_iterable(found):
            key = (int(rows[text]), item)
            pairs[key] = pairs.get(key, _Pair(*key))._replace(share=1.0, contained=True)
        return list(pairs.values())

    def _best(self, pairs: Sequence[_Pair]) -> list[_Pair]:
        """The pairs of one row of which most is shared, a few of each evaluation."""
        kept: dict[int, list[_Pair]] = {}
        for pair in sorted(pairs, key=lambda one: (-one.share, one.item)):
            same = kept.setdefault(self._evaluation[pair.item], [])
            if len(same) < MOST:
                same.append(pair)
        return sorted((one for some in kept.values() for one in some), key=lambda one: one.item)

    def _overlap(self, pair: _Pair, turns: Sequence[str]) -> Overlap:
        match = b" ".join(self._runs.words[pair.item][pair.first : pair.stop])
        said = _around(words.solid(match), words.plain, turns)
        if pair.contained:
            ways = (_around(one.solid[pair.item], one.spell, turns) for one in self._letters)
            said = next(filter(None, ways), said)
        return Overlap(
            item=pair.item,
            share=pair.share,
            contained=pair.contained,
            match=shortened(match.decode()),
            said=said or shortened("\n\n".join(turns)),
        )


def shortened(text: str, most: int = EXCERPT) -> str:
    """The beginning of a text that is longer."""
    return text if len(text) <= most else f"{text[:most]}…"


def _around(letters: bytes, spell: Callable[[str], bytes], turns: Sequence[str]) -> str:
    """The turn that has these letters, or as much of it around them as is shown; empty where none
    has."""
    for turn in turns:
        at = words.solid(spell(turn)).find(letters)
        if at < 0:
            continue
        if len(turn) <= EXCERPT:
            return turn
        before = words.letters_before(turn)
        place = bisect.bisect_right(before, at) - 1
        first = max(0, min(place - EXCERPT // 8, len(turn) - EXCERPT))
        last = first + EXCERPT
        return f"{'…' if first else ''}{turn[first:last]}{'…' if last < len(turn) else ''}"
    return ""


def _blocks(texts: Sequence[str], rows: Ints) -> Iterator[tuple[int, int]]:
    """Runs of texts of about one size; those of a row are in one of them."""
    first = size = 0
    for number, text in enumerate(texts):
        if size > _BLOCK and rows[number] != rows[number - 1]:
            yield first, number
            first, size = number, 0
        size += len(text)
    if texts:
        yield first, len(texts)


@functools.lru_cache(maxsize=2)
def index_of(search: Search) -> Index:
    """The index of a search, made once in a process.

    Raises:
        UsageError, SurroundingsError, ContainerError: see ``evaluations.read``.
    """
    return Index(evaluations.items(search.evaluations), search.size)


def put(batch: Batch, kind: Kind, search: Search) -> Batch:
    """The batch with the column ``overlaps``: a list of hits, empty for almost every sequence."""
    texts, rows = signatures.compared_texts(batch, kind, search.whole)
    found = index_of(search).overlaps(texts, rows)
    values: list[Any] = [[] for _ in range(batch.num_rows)]
    for row, overlaps in found.items():
        values[row] = [overlap._asdict() for overlap in overlaps]
    return columns.put(batch, NAME, pa.array(values, columns.TYPES[NAME]))
