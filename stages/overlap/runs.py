"""Questions by their runs of n words, and how much of each a text shares.

The share of a question is that of its words which are part of a run of n words that the text has
too. A run that many questions of an evaluation have is its instruction ("Answer with the letter of
the right choice"): it tells nothing about one of them, and is left out on both sides of the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.columns import Ints, offsets_of
from stages.overlap.hashes import Hashes, Known, mixed, rolling

COMMON, COMMON_SHARE = 10, 0.1  # more questions of an evaluation, and a larger share, have it
_UNKNOWN = 0  # a word that no question has


@dataclass(frozen=True, slots=True)
class Shared:
    """How much of some questions some rows have, in the order of rows and questions.

    Attributes:
        row, item: of each; ``share``: of the question's words, above 0 and at most 1.
        first, stop: the words of the question that are the longest shared stretch.
    """

    row: Ints
    item: Ints
    share: npt.NDArray[np.float64]
    first: Ints
    stop: Ints


def _hashes(ids: Ints, size: int) -> Hashes:
    """A hash of every run of so many words."""
    return mixed(rolling(ids.astype(np.uint64), size))


def _begins(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a new combination of values begins, in columns that are sorted together."""
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def _fresh(places: Ints, begins: npt.NDArray[np.bool_], size: int) -> Ints:
    """How many words each run adds to those before it of the same group."""
    fresh = np.full(len(places), size, np.int64)
    # Only the words up to the next run, where that begins inside this one.
    inside = ~begins[1:]
    fresh[:-1][inside] = np.minimum(size, np.diff(places)[inside])
    return fresh


class Runs:
    """The runs of all questions.

    Args:
        texts: of each question, in plain words; ``evaluation``: the number of its evaluation.
        size: words of a run.
    """

    def __init__(self, texts: Sequence[bytes], evaluation: Sequence[int], size: int) -> None:
        self.size = size
        self.words = [text.split() for text in texts]
        # Every word of a question by its number, from 1.
        self._ids = {
            word: number for number, word in enumerate(dict.fromkeys(chain(*self.words)), 1)
        }
        starts = offsets_of(np.array([len(words) for words in self.words], np.int64))
        self._all = self._numbers(list(chain(*self.words)))
        owner = np.repeat(np.arange(len(texts)), np.diff(starts))
        hashes = _hashes(self._all, size)
        at = np.flatnonzero(owner[: len(hashes)] == owner[len(owner) - len(hashes) :])
        hashes, items = hashes[at], owner[at]
        telling = ~_common(hashes, items, np.array(evaluation, np.int64))
        at, hashes, items = at[telling], hashes[telling], items[telling]
        places = at - starts[items]
        fresh = _fresh(places, _begins(items), size) if len(items) else places
        self.counted = np.bincount(items, weights=fresh, minlength=len(texts)).astype(np.int64)
        self._known = Known(hashes)
        order = np.argsort(hashes, kind="stable")
        self._items, self._places = items[order], places[order]
        self._offsets = np.searchsorted(hashes[order], self._known.hashes)
        self._first = at[order][self._offsets]  # where each known run stands in all words
        self._offsets = np.append(self._offsets, len(order))

    def _numbers(self, words: Sequence[bytes]) -> Ints:
        return np.fromiter(map(self._ids.get, words, repeat(_UNKNOWN)), np.int64, len(words))

    def shared(self, words: Sequence[bytes], row_of_word: Ints) -> Shared:
        """What rows share with the questions.

        Args:
            words: of all rows, with a word that no question has between two texts.
            row_of_word: ascending.
        """
        ids = self._numbers(words)
        at, run = self._known.find(_hashes(ids, self.size))
        if len(at):
            steps = np.arange(self.size)
            same = (ids[at[:, None] + steps] == self._all[self._first[run][:, None] + steps]).all(1)
            at, run = at[same], run[same]
        row = row_of_word[at]
        order = np.lexsort((run, row))
        row, run = row[order], run[order]
        once = _begins(row, run)
        row, run = row[once], run[once]
        counts = np.diff(self._offsets)[run]
        # The questions that have each of these runs, and where they have it.
        each = np.repeat(self._offsets[run] - offsets_of(counts)[:-1], counts)
        each = each + np.arange(len(each))
        row, item, place = np.repeat(row, counts), self._items[each], self._places[each]
        order = np.lexsort((place, item, row))
        return self._of_groups(row[order], item[order], place[order])

    def _of_groups(self, row: Ints, item: Ints, place: Ints) -> Shared:
        """Sorted occurrences of runs, added up for each row and question."""
        if not len(row):
            return Shared(row, item, np.zeros(0), row, row)
        begins = _begins(row, item)
        groups = np.flatnonzero(begins)
        covered = np.add.reduceat(_fresh(place, begins, self.size), groups)
        # A stretch goes on where a run begins one word after the one before it.
        broken = begins.copy()
        broken[1:] |= np.diff(place) != 1
        stretch = np.flatnonzero(broken)
        length = np.diff(np.append(stretch, len(place)))
        group = np.cumsum(begins)[stretch]
        longest = np.lexsort((stretch, -length, group))
        longest = longest[_begins(group[longest])]
        first = place[stretch[longest]]
        stop = first + length[longest] + self.size - 1
        share = covered / self.counted[item[groups]]
        return Shared(row[groups], item[groups], share, first, stop)


def _common(hashes: Hashes, items: Ints, evaluation: Ints) -> npt.NDArray[np.bool_]:
    """Which runs so many questions of an evaluation have that they tell nothing about one."""
    common = np.zeros(len(hashes), bool)
    for number, size in zip(*np.unique(evaluation, return_counts=True), strict=True):
        own = np.flatnonzero(evaluation[items] == number)
        order = np.lexsort((items[own], hashes[own]))
        once = _begins(hashes[own][order].view(np.int64), items[own][order])
        values, counts = np.unique(hashes[own][order][once], return_counts=True)
        often = values[(counts > COMMON) & (counts > COMMON_SHARE * size)]
        common[own] = np.isin(hashes[own], often)
    return common
