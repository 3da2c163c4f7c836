"""Placeholders: they stand for a row's texts while a template is compiled, and watch what it does.

A placeholder is a string of two private-use characters with the turn's index between them, so it is
found again in what the template prints. A template may print it, join it to other text, and strip
it. It may ask whether the text holds, begins or ends with some text: the answer is no, and that
becomes a guard of the program. Every other method of ``str`` raises, since with it the template
could print something that depends on the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from stages.chat_template.template import WatchedText

_OPEN, _CLOSE = "\ue000", "\ue001"
# The index, then the strips in the order in which they were made: ``s;`` for strip, ``l;`` and
# ``r;`` for one side, each with the characters to strip as hex (``r20;``: spaces at the end).
SLOT = re.compile(f"{_OPEN}(\\d+)((?:[slr][0-9a-f]*;)*){_CLOSE}")

_STRIPS: dict[str, Callable[[str, str | None], str]] = {
    "s": str.strip,
    "l": str.lstrip,
    "r": str.rstrip,
}
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


class Placeholder(WatchedText):
    """Stands for one text, or for several joined to others."""

    __slots__ = ()
    # What the current rendering asked; a process runs one rendering at a time.
    guards: ClassVar[list[Guard]] = []

    def __add__(self, other: str) -> Placeholder:
        return Placeholder(str.__add__(self, other))

    def __radd__(self, other: str) -> Placeholder:
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

    def _without(self, side: str, chars: str | None) -> Placeholder:
        index, how = self._alone()
        if isinstance(chars, WatchedText) or chars == "":
            raise LookedIntoError("strip")
        return placeholder(index, f"{how}{side}{(chars or '').encode().hex()};")

    def _ask(self, ask: str, part: Any) -> bool:
        index, how = self._alone()
        if isinstance(part, WatchedText) or not isinstance(part, str):
            raise LookedIntoError(ask)
        Placeholder.guards.append(Guard(index, how, ask, part))
        return False

    def strip(self, chars: str | None = None, /) -> Placeholder:
        return self._without("s", chars)

    def lstrip(self, chars: str | None = None, /) -> Placeholder:
        return self._without("l", chars)

    def rstrip(self, chars: str | None = None, /) -> Placeholder:
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


def placeholder(index: int, how: str = "") -> Placeholder:
    """The placeholder of a text."""
    return Placeholder(f"{_OPEN}{index}{how}{_CLOSE}")


def _forbid(name: str) -> Any:
    def looked_into(self: Placeholder, *args: Any, **kwargs: Any) -> Any:
        raise LookedIntoError(name)

    return looked_into


# Methods that tell nothing about the text. All others of ``str`` are replaced by ones that raise,
# so that a method of a later Python raises as well.
_HARMLESS = {"__new__", "__init__", "__class__", "__getattribute__", "__doc__", "__dir__"}
_HARMLESS |= {"__reduce__", "__reduce_ex__", "__sizeof__", "__setattr__", "__delattr__"}
_HARMLESS |= {"__init_subclass__", "__subclasshook__", "__repr__", "__getnewargs__"}
_HARMLESS |= {"__getstate__", "__hash__"}
for _name in set(dir(str)) - set(vars(Placeholder)) - _HARMLESS:
    setattr(Placeholder, _name, _forbid(_name))
