"""Questions by their letters and digits alone: a copy is found whatever its spaces are.

A question of fewer words than a run is found in no other way, so more is asked of it: it begins
and ends where words do, the signs between its numbers are the same (``2 + 2`` is not ``22``), and
one of less than ``ANCHOR`` bytes is a whole turn of the row.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from stages.columns import Ints
from stages.overlap import words
from stages.overlap.hashes import SEED, Hashes, Known, mixed
from stages.overlap.words import numbers_in_text

ANCHOR = 16  # bytes in the middle of a question that are looked for first
_HALF = ANCHOR // 2
_SIGNS = str.maketrans("−–—×·÷", "---**/")
_NO_SIGN = re.compile(r"[^\w+\-*/^=<>%]|_")
_LOOSE = re.compile(r"(?<![0-9])[+\-*/^=<>%]+(?![0-9])|^[+\-*/^=<>%]+|[+\-*/^=<>%]+$")


def signed(text: str, numbers: bool = True) -> str:
    """Letters and digits of a text, with the signs next to its numbers.

    Args:
        numbers: numbers in words are digits.
    """
    folded = unicodedata.normalize("NFKD", text.translate(_SIGNS)).casefold()
    bare = "".join(one for one in folded if not unicodedata.category(one).startswith("M"))
    spelled = numbers_in_text(bare.encode()).decode() if numbers else bare
    return _LOOSE.sub("", _NO_SIGN.sub("", spelled))


def _hashes(letters: npt.NDArray[np.uint8]) -> Hashes:
    """A hash of every ``ANCHOR`` bytes."""
    count = len(letters) - ANCHOR + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    # Eight bytes from each byte on, as one number.
    halves = np.ndarray((count + _HALF,), "<u8", buffer=letters.data, strides=(1,))
    return mixed(halves[:count] * SEED + halves[_HALF:])


class Letters:
    """The letters and digits of all questions.

    Args:
        questions: as the evaluations have them.
        size: words of a run: questions with fewer are short.
        numbers: numbers in words are digits.
    """

    def __init__(self, questions: Sequence[str], size: int, numbers: bool) -> None:
        self.spell = words.plain if numbers else words.bare
        self._numbers = numbers
        texts = [self.spell(question) for question in questions]
        self.solid = [words.solid(text) for text in texts]
        self._short = {
            item: signed(questions[item], numbers)
            for item, text in enumerate(texts)
            if self.solid[item] and len(text.split()) < size
        }
        self._whole: dict[bytes, list[int]] = defaultdict(list)
        self._by_anchor: dict[bytes, list[int]] = defaultdict(list)
        for item, letters in enumerate(self.solid):
            if len(letters) >= ANCHOR:
                at = _anchor(letters)  # in the middle, since many questions begin alike
                self._by_anchor[letters[at : at + ANCHOR]].append(item)
            elif item in self._short:
                self._whole[letters].append(item)
        anchors = np.frombuffer(b"".join(self._by_anchor), np.uint8)
        self._known = Known(_hashes(anchors)[::ANCHOR])

    def find(self, block: bytes, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Texts that have a question, and the question; a pair may be given more than once.

        Args:
            block: the texts as ``spell`` gives them, ``words.END`` between two of them.
        """
        every = np.frombuffer(block, np.uint8)
        letters = np.ascontiguousarray(every[every != words.SPACE[0]])
        ends = np.append(np.flatnonzero(letters == words.END[0]), len(letters))
        starts = np.append(0, ends[:-1] + 1)
        solid = letters.tobytes()
        yield from self._short_turns(solid, texts, starts, ends)
        places, _ = self._known.find(_hashes(letters))
        for place in places.tolist():
            text = int(np.searchsorted(ends, place, side="right"))
            for item in self._by_anchor.get(solid[place : place + ANCHOR], ()):
                begin = place - _anchor(self.solid[item])
                there = begin >= starts[text] and solid.startswith(self.solid[item], begin)
                if there and self._fits(item, begin - int(starts[text]), texts[text]):
                    yield text, item

    def _short_turns(
        self, solid: bytes, texts: Sequence[str], starts: Ints, ends: Ints
    ) -> Iterator[tuple[int, int]]:
        """Texts that are a question of a few letters."""
        if not self._whole:
            return
        for text in np.flatnonzero(ends - starts < ANCHOR).tolist():
            for item in self._whole.get(solid[starts[text] : ends[text]], ()):
                if signed(texts[text], self._numbers) == self._short[item]:
                    yield text, item

    def _fits(self, item: int, begin: int, text: str) -> bool:
        """Whether a question that stands in a text from this letter on is one there."""
        spelled = self._short.get(item)
        if spelled is None:
            return True
        ends = np.cumsum([0, *map(len, self.spell(text).split())]).tolist()
        whole_words = begin in ends and begin + len(self.solid[item]) in ends
        return whole_words and spelled in signed(text, self._numbers)


def _anchor(letters: bytes) -> int:
    return (len(letters) - ANCHOR) // 2
