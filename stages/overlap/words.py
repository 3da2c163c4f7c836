"""A text as words that can be compared: letters and digits, without case, accents and punctuation.

Two texts that differ in no more than that have the same words. ``1,000`` is ``1000``, a digit of
any script is its ASCII digit, and English numbers in words are digits, too. Ideographs and kana are
a word each, since no space is between them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from stages.overlap.numbers import in_words

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
    return in_words(bare(text))


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
