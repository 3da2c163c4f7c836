"""Segments: the unit of encoding, and what each one is.

A segment is a control token that the template printed, or the text between two of them, cut once
more where training starts. Text segments are encoded with special tokens off, so nothing that a
user wrote can become a control token.

A question and its answer in ChatML, as the template prints them::

    <|im_start|>system
    Be kind.<|im_end|>
    <|im_start|>user
    Hi<|im_end|>
    <|im_start|>assistant
    Hello!<|im_end|>

become these segments, and with the tokenizer of Qwen2 these ids (the first two turns are alike, so
only the second is shown)::

    segment         kind                        ids               label
    <|im_start|>    CONTROL                     151644            -100
    user\\nHi        0                           872 198 13048     -100
    <|im_end|>      CONTROL                     151645            -100
    \\n              0                           198               -100
    <|im_start|>    CONTROL                     151644            -100
    assistant\\n     0                           77091 198         -100
    Hello!          TRAINED                     9707 0            the ids
    <|im_end|>      CONTROL | TRAINED           151645            the id
    \\n              CLOSES                      198               -100

``assistant\\nHello!`` is one text between two control tokens; it is cut where the generation prompt
ends, because inference encodes the prompt alone. The line break behind the answer is printed by the
template but never generated, so it is not trained; ``--too-long trim-turns`` may cut after it.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import orjson

CONTROL = 1  # one registered special token
TRAINED = 2
STEP = 4  # a PRM step; its marker comes right after
CLOSES = 8  # a trained turn is complete here: an example may be cut after this segment
MARKER = 16  # a step marker

Segment: TypeAlias = tuple[str, int]
Span: TypeAlias = tuple[int, int]  # a stretch of text: start included, stop not


def controls_pattern(controls: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of the control tokens; the longest of several that match."""
    return re.compile("|".join(re.escape(c) for c in sorted(controls, key=len, reverse=True)))


def _pieces(text: str, controls: re.Pattern[str]) -> Iterator[tuple[int, int, int]]:
    """Start, stop and kind (``CONTROL`` or 0) of each control token and of each text between."""
    at = 0
    for match in controls.finditer(text):
        if match.start() > at:
            yield at, match.start(), 0
        yield match.start(), match.end(), CONTROL
        at = match.end()
    if at < len(text):
        yield at, len(text), 0


def cut(text: str, trained: Sequence[Span], controls: re.Pattern[str]) -> list[Segment]:
    """Cut rendered text into segments.

    Args:
        trained: disjoint spans in order.

    Raises:
        ValueError: training starts or stops inside a control token.
    """
    # Starts and stops alternate (start, stop, start, ...): a place with an odd number of edges at
    # or before it is inside a span.
    edges = [edge for span in trained for edge in span]
    segments: list[Segment] = []
    for start, stop, kind in _pieces(text, controls):
        inner = edges[bisect_right(edges, start) : bisect_right(edges, stop - 1)]
        if kind and inner:
            raise ValueError(f"training starts inside the control token {text[start:stop]!r}")
        for a, b in itertools.pairwise([start, *dict.fromkeys(inner), stop]):
            inside = bisect_right(edges, a) % 2
            segments.append((text[a:b], kind | (TRAINED if inside else 0)))
    return _closed(segments)


def _closed(segments: list[Segment]) -> list[Segment]:
    """Mark where a trained turn is complete: at its last control token, or at blanks after it."""
    for i, (_, kind) in enumerate(segments):
        following = segments[i + 1] if i + 1 < len(segments) else ("", 0)
        if kind & CONTROL and kind & TRAINED and not following[1] & TRAINED:
            at = i + 1 if following[0].isspace() and not following[1] & CONTROL else i
            segments[at] = (segments[at][0], segments[at][1] | CLOSES)
    return segments


# Outlines: the segments of all rows of one shape, as one text.
#
# Where a shape's template is compiled (see ``compile``), its rows differ in their own texts only.
# So a batch has the segments of a shape once, as JSON: a list of text and kind, with null for the
# text where a text of the row belongs::
#
#     [["<|im_start|>",1],[null,0],["<|im_end|>",1],...]
#
# and each row has its own texts in a list. Together they are the row's segments.


Outline: TypeAlias = list[tuple[str | None, int]]


def spelled(segments: Iterable[tuple[str | None, int]]) -> str:
    """An outline as the text that the column ``outline`` has."""
    return orjson.dumps([*segments]).decode()


def parsed(text: str) -> Outline:
    """The outline that a text spells."""
    return [(text, kind) for text, kind in orjson.loads(text)]


def filled(outline: Outline, texts: Iterable[str]) -> list[str]:
    """The texts of all segments of a row, given its own."""
    own: Iterator[str] = iter(texts)
    return [next(own) if text is None else text for text, _ in outline]


# Placeholders: they stand for a row's texts while a template is compiled, and watch what it does.
#
# A placeholder is a string of two private-use characters with the turn's index between them, so it
# is found again in what the template prints. A template may print it, join it to other text, and
# strip it. It may ask whether the text holds, begins or ends with some text: the answer is no, and
# that becomes a guard of the program. Every other method of ``str`` raises, since with it the
# template could print something that depends on the text.


_OPEN, _CLOSE = "\ue000", "\ue001"
# The index, then the strips in the order in which they were made: ``s;`` for strip, ``l;`` and
# ``r;`` for one side, each with the characters to strip as hex (``r20;``: spaces at the end).
SLOT = re.compile(f"{_OPEN}(\\d+)((?:[slr][0-9a-f]*;)*){_CLOSE}")

_STRIPS = {"s": str.strip, "l": str.lstrip, "r": str.rstrip}
_ASKS: dict[str, Callable[[str, str], bool]] = {
    "holds": lambda text, part: part in text,
    "begins": str.startswith,
    "ends": str.endswith,
}


class LookedIntoError(Exception):
    """The template did more with a text than print it."""


def stripped(text: str, how: str) -> str:
    """A text after a slot's strips, as ``SLOT`` spells them."""
    for step in how.split(";")[:-1]:
        chars = bytes.fromhex(step[1:]).decode() or None
        text = _STRIPS[step[0]](text, chars)
    return text


@dataclass(frozen=True, slots=True)
class Guard:
    """A question that a template asked about a text, which was answered with no.

    Attributes:
        slot: index of the turn.
        how: the strips that were made before the question.
        ask: ``holds``, ``begins`` or ``ends``; ``part``: the text that was asked for.
    """

    slot: int
    how: str
    ask: str
    part: str

    def holds(self, text: str) -> bool:
        """Whether no is the right answer for this text."""
        return not _ASKS[self.ask](stripped(text, self.how), self.part)


class Placeholder(str):
    """Stands for one text, or for several joined to others."""

    __slots__ = ()
    # What the current rendering asked; a process runs one rendering at a time.
    guards: ClassVar[list[Guard]] = []

    def __add__(self, other: str) -> "Placeholder":
        return Placeholder(str.__add__(self, other))

    def __radd__(self, other: str) -> "Placeholder":
        return Placeholder(str.__add__(other, self))

    def __str__(self) -> str:
        return self  # str(x) would otherwise return a plain copy, which nothing watches

    def __bool__(self) -> bool:
        """True, since rows with an empty text have another shape; a stripped text may be empty."""
        if str.__len__(SLOT.sub(lambda m: "" if m[2] else "x", str.__str__(self))):
            return True
        raise LookedIntoError("bool")

    def _alone(self) -> tuple[int, str]:
        match = SLOT.fullmatch(str.__str__(self))
        if match is None:
            raise LookedIntoError("a joined text")
        return int(match[1]), match[2]

    def _without(self, side: str, chars: str | None) -> "Placeholder":
        index, how = self._alone()
        if isinstance(chars, Placeholder) or chars == "":
            raise LookedIntoError("strip")
        return placeholder(index, f"{how}{side}{(chars or '').encode().hex()};")

    def _ask(self, ask: str, part: Any) -> bool:
        index, how = self._alone()
        if isinstance(part, Placeholder) or not isinstance(part, str):
            raise LookedIntoError(ask)
        Placeholder.guards.append(Guard(index, how, ask, part))
        return False

    def strip(self, chars: str | None = None, /) -> "Placeholder":
        return self._without("s", chars)

    def lstrip(self, chars: str | None = None, /) -> "Placeholder":
        return self._without("l", chars)

    def rstrip(self, chars: str | None = None, /) -> "Placeholder":
        return self._without("r", chars)

    def startswith(self, part: Any, *bounds: Any) -> bool:
        if bounds:
            raise LookedIntoError("startswith")
        return self._ask("begins", part)

    def endswith(self, part: Any, *bounds: Any) -> bool:
        if bounds:
            raise LookedIntoError("endswith")
        return self._ask("ends", part)

    def __contains__(self, part: Any) -> bool:
        return self._ask("holds", part)


def placeholder(index: int, how: str = "") -> "Placeholder":
    """The placeholder of a text."""
    return Placeholder(f"{_OPEN}{index}{how}{_CLOSE}")


def _forbid(name: str) -> Any:
    def looked_into(self: Placeholder, *args: Any, **kwargs: Any) -> Any:
        raise LookedIntoError(name)

    return looked_into


# Methods that tell nothing about the text. All others of ``str`` are replaced by ones that raise,
# so that a method of a later Python raises as well.
_HARMLESS_TEXT = {"__new__", "__init__", "__class__", "__getattribute__", "__doc__", "__dir__"}
_HARMLESS_TEXT |= {"__reduce__", "__reduce_ex__", "__sizeof__", "__setattr__", "__delattr__"}
_HARMLESS_TEXT |= {"__init_subclass__", "__subclasshook__", "__repr__", "__getnewargs__"}
_HARMLESS_TEXT |= {"__getstate__", "__hash__"}
for _name in set(dir(str)) - set(vars(Placeholder)) - _HARMLESS_TEXT:
    setattr(Placeholder, _name, _forbid(_name))
