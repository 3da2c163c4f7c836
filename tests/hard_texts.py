"""Texts on which tokenizers are known to part: runs, indented code, odd characters, near pieces."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

# One of each kind: blanks, marks, scripts, joiners, controls, characters that no vocabulary has.
CHARS = (
    *" \n\t\r\u00a0\u3000\u2028\u0085\x1c\x00", *"=-_*#.a0A", "▁", "é", "e\u0301", "ж", "中", "。",
    "ا", "ก", "😀", "👩\u200d", "\u200b", "\ufeff", "\ue000", "\U000e0041", "'s", "'ſ",
)  # fmt: skip
LENGTHS = (*range(1, 36), 47, 48, 49, 63, 64, 65, 81, 100, 127, 128, 129, 199, 200)
_LINES = ("def f(x):", "return x", "}", "# ---- =====", "\tif a==b:", "", "x = [1,", "你好", "é=1")


def runs(chars: Iterable[str], lengths: Iterable[int] = LENGTHS) -> Iterator[str]:
    """Runs of each character, alone and inside a text."""
    for char, length in itertools.product(chars, tuple(lengths)):
        yield char * length
        yield f"x{char * length}y"


def pairs(chars: Sequence[str] = CHARS, lengths: Sequence[int] = (1, 2, 15, 18)) -> Iterator[str]:
    """Two runs beside one another, and the two characters in turn."""
    for a, b in itertools.permutations(chars, 2):
        for m, n in itertools.product(lengths, lengths):
            yield a * m + b * n
        yield (a + b) * 9
        yield (a + a + b) * 5


def indented(count: int, seed: int = 5) -> Iterator[str]:
    """Code, indented by up to 70 spaces."""
    rng = random.Random(seed)
    for _ in range(count):
        lines = rng.choices(_LINES, k=rng.randint(1, 12))
        yield "\n".join(" " * rng.randint(0, 70) + line for line in lines)


def drawn(words: Sequence[str], count: int, seed: int = 7) -> Iterator[str]:
    """Texts made of a vocabulary's own words, of the characters of two of them, and of anything."""
    rng = random.Random(seed)
    for _ in range(count):
        yield "".join(rng.choices(words, k=rng.randint(1, 12))) + " " * rng.randint(0, 60) + "x"
        few = "".join(rng.choices(words, k=2)) + " "
        yield "".join(rng.choices(few, k=rng.randint(1, 60)))
        points = (rng.randrange(0x110000) for _ in range(12))
        yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def every_character(first: int = 0, step: int = 1) -> Iterator[str]:
    """Each ``step``-th code point beside letters, digits, blanks, punctuation and itself."""
    for point in (*range(0xD800), *range(0xE000, 0x110000))[first::step]:
        c = chr(point)
        yield f"a {c}{c} {c * 3}b{c}1{c}!{c}\n{c}"
