"""A text as words that can be compared: letters and digits, without case, accents and punctuation.

Two texts that differ in no more than that have the same words. ``1,000`` is ``1000``, a digit of
any script is its ASCII digit, and English numbers in words are digits, too. Ideographs and kana are
a word each, since no space is between them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

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


def numbers_in_text(text: bytes) -> bytes:
    """The same of any text in lower case."""
    return _ANYWHERE.sub(_digits, text)
