"""English numbers in words as digits: ``forty-eight`` is ``48``."""

from __future__ import annotations

import re

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


def in_words(text: bytes) -> bytes:
    """Words in lower case with spaces between them, with digits for numbers."""
    return _BEHIND_SPACE.sub(_digits, b" " + text)


def in_text(text: bytes) -> bytes:
    """The same of any text in lower case."""
    return _ANYWHERE.sub(_digits, text)
