"""A text as words that can be compared: letters and digits, without case, accents and punctuation.

Two texts that differ in no more than that have the same words. ``1,000`` is ``1000``, a digit of
any script is its ASCII digit, and English numbers in words are digits, too. Ideographs and kana are
a word each, since no space is between them.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stages.columns import Ints

SPACE, END = b" ", b"\x01"  # between two words, and between two texts: in no word
_ASCII = bytes(
    code if 48 <= code <= 57 or 97 <= code <= 122 else code + 32 if 65 <= code <= 90 else 32
    for code in range(256)
)
_GROUPED = re.compile(r",(?=[0-9]{3}(?![0-9]))(?<=[0-9],)")  # digits are ASCII by then
_ALONE = re.compile(r"[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


class _Digits(dict[int, str]):
    """Each decimal digit as the ASCII one, and other characters as they are."""

    def __missing__(self, code: int) -> str:
        value = unicodedata.decimal(chr(code), None)
        found = self[code] = chr(code) if value is None else str(value)
        return found


class _Characters(dict[int, str]):
    """What each character is in a word; a space where it belongs to none."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character).startswith("M"):
            found = ""  # an accent, or a vowel sign
        elif _ALONE.match(character):
            found = f" {character} "
        else:
            found = character if character.isalnum() else " "
        self[code] = found
        return found


_DIGITS, _CHARACTERS = _Digits(), _Characters()


def plain(text: str) -> bytes:
    """The words of a text, in UTF-8, with one or more spaces between them."""
    return numbers_in_words(bare(text))


def bare(text: str) -> bytes:
    """The same, with numbers as they are written: where spaces are missing, a number in words
    cannot be told from the words around it."""
    if text.isascii():
        if "," in text:
            text = _GROUPED.sub("", text)
        return text.encode().translate(_ASCII)
    # Folding case may give characters that can be decomposed, and the other way round.
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    text = _GROUPED.sub("", text.translate(_DIGITS))
    return text.translate(_CHARACTERS).encode()


def joined(texts: Iterable[bytes]) -> bytes:
    """Words of several texts, with ``END`` as a word of its own between two of them."""
    return b" \x01 ".join(texts)


def solid(text: bytes) -> bytes:
    """Words without the spaces between them."""
    return text.replace(SPACE, b"")


def letters_before(text: str) -> list[int]:
    """How many bytes of ``solid(plain(text))`` come from the characters before each one, and the
    number of all: where a place among its letters is in the text, about (numbers in words count as
    words)."""
    counts = [0]
    for character in text:
        counts.append(counts[-1] + len(solid(plain(character))))
    return counts


_UNITS = "zero one two three four five six seven eight nine".split()
_TEENS = ("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen").split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {
    **{word.encode(): value for value, word in enumerate([*_UNITS, *_TEENS])},
    **{word.encode(): 10 * value for value, word in enumerate(_TENS, 2)},
}
_SCALES = {b"thousand": 1000, b"million": 1_000_000}


def _number() -> str:
    """The words of a number."""
    gap, scale = "[ -]+", "(?:thousand|million)"
    unit, teen, ten = ("|".join(words) for words in (_UNITS[1:], _TEENS, _TENS))
    small = f"(?:{teen}|(?:{ten})(?:{gap}(?:{unit}))?|{unit})"
    hundreds = f"(?:{unit})(?:{gap}hundred(?:{gap}(?:and{gap})?{small}(?!{_LETTER}))?)?"
    below = f"(?:{teen}|(?:{ten})(?:{gap}(?:{unit})(?!{_LETTER}))?|{hundreds})(?!{_LETTER})"
    rest = f"(?:{gap}(?:and{gap})?{below}(?!{gap}{scale}))?"
    return f"(?:zero|{below}(?:{gap}{scale}(?!{_LETTER}){rest})?)(?!{_LETTER})"


_LETTER = r"[0-9a-z\x80-\xff]"
_ANYWHERE = re.compile(f"(?<!{_LETTER}){_number()}".encode("latin-1"))
# The same behind a space: begun with one byte, it is looked for much faster.
_BEHIND_SPACE = re.compile(f" {_number()}".encode("latin-1"))


def _digits(match: re.Match[bytes]) -> bytes:
    found = match[0]
    total = current = 0
    for word in found.replace(b"-", b" ").split():
        if word == b"hundred":
            current *= 100
        elif word in _SCALES:
            total, current = total + current * _SCALES[word], 0
        else:
            current += _VALUES.get(word, 0)  # "and" is nothing
    return (b" %d" if found.startswith(b" ") else b"%d") % (total + current)


def numbers_in_words(text: bytes) -> bytes:
    """Words in lower case with spaces between them, with digits for numbers."""
    return _BEHIND_SPACE.sub(_digits, b" " + text)


# Which of many hashes are known: asked for every word and every byte of a text.


Hashes: TypeAlias = npt.NDArray[np.uint64]
SEED = np.uint64(0x9E3779B97F4A7C15)
_BITS = 22


def mixed(values: Hashes) -> Hashes:
    """Every bit of a number in every bit of its hash; sums and products wrap at 64 bits."""
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return values ^ (values >> np.uint64(29))


def rolling(numbers: Hashes, size: int) -> Hashes:
    """A number for every run of so many numbers; ``mixed`` makes hashes of them."""
    count = max(len(numbers) - size + 1, 0)
    total = np.zeros(count, np.uint64)
    for place in range(size):
        total = total * SEED + numbers[place : place + count]
    return total


class Known:
    """Known hashes: a table of bits is asked first, since almost none of a text's is among them."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = np.unique(hashes)
        self._shift = np.uint64(64 - _BITS)
        self._bits = np.zeros(1 << _BITS, bool)
        self._bits[self.hashes >> self._shift] = True

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Places of those that are known, ascending, and the number of each among the known."""
        places = np.flatnonzero(self._bits[hashes >> self._shift])
        if not len(places):
            return places, places
        number = np.minimum(np.searchsorted(self.hashes, hashes[places]), len(self.hashes) - 1)
        same = self.hashes[number] == hashes[places]
        return places[same], number[same]


# Questions by their letters and digits alone: a copy is found whatever its spaces are.
#
# A question of fewer words than a run is found in no other way, so more is asked of it: it begins
# and ends where words do, the signs between its numbers are the same (``2 + 2`` is not ``22``), and
# one of less than ``ANCHOR`` bytes is a whole turn of the row.


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
    spelled = _ANYWHERE.sub(_digits, bare.encode()).decode() if numbers else bare
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
        self.spell = plain if numbers else bare
        self._numbers = numbers
        texts = [self.spell(question) for question in questions]
        self.solid = [solid(text) for text in texts]
        few = [n for n, text in enumerate(texts) if self.solid[n] and len(text.split()) < size]
        self._short = {item: signed(questions[item], numbers) for item in few}
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
        letters = np.ascontiguousarray(every[every != SPACE[0]])
        ends = np.append(np.flatnonzero(letters == END[0]), len(letters))
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
