"""Placeholders: they stand for a row's texts while a template is compiled, and watch what it does.

A placeholder is a string of two private-use characters with the turn's index between them, so it is
found again in what the template prints. A template may print it, join it to other text, and strip
it. It may ask whether the text holds, begins or ends with some text: the answer is no, and that
becomes a guard of the program. Every other method of ``str`` raises, since with it the template
could print something that depends on the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


# Excerpts: a few turns of a long conversation, on which one of its turns is proved.
#
# What a template prints for a turn depends on the turns beside it and on those that open the
# conversation. So to learn how one turn of a long conversation is printed, a short conversation is
# rendered: the turns before the first user turn, the exchange before the turn's own, its own
# exchange up to the turn, and what follows up to the next answer. Of many tool calls within an
# exchange the last few stay. Only whole exchanges, and whole calls with their results, are left
# out.


SHORT = 32  # turns; a conversation of at most so many is proved as a whole
_OPENING = 4  # turns before the first user turn, at most
_STEPS = 3  # turns that stay of a long exchange, at least
_REACH = 32  # turns that are searched for the beginning of a step


class Excerpts:
    """The excerpts of one conversation.

    Args:
        roles: of its turns.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._first = next((i for i, role in enumerate(roles) if role == "user"), len(roles))
        self._asked = _before(roles, "user")
        self._answered = _before(roles, "assistant")

    def whole(self, index: int) -> bool:
        """Whether a turn is proved with all turns before it, not on an excerpt.

        The first turns are, and then one answer each time the conversation has doubled, so that
        all these renderings together take time linear in its length.
        """
        # The index of the answer before has fewer bits: a power of two lies between the two.
        return index < SHORT or self._answered[index].bit_length() < index.bit_length()

    def of(self, index: int) -> list[int] | None:
        """The turns of the excerpt for a turn; None where no turn can be left out."""
        user_turn = self._asked[index]
        if self._first > _OPENING or user_turn < 0:
            return None
        picked = list(range(self._first))
        for start, stop in ((self._asked[user_turn], user_turn), (user_turn, index)):
            exchange = self._exchange(start, stop) if start >= 0 else []
            if exchange is None:
                return None
            picked += exchange
        picked += range(index, self._following(index))
        return picked if len(picked) < len(self._roles) else None

    def _exchange(self, start: int, stop: int) -> list[int] | None:
        """A user turn and what follows it, with the last of its steps."""
        if stop - start <= 2 * _STEPS:
            return list(range(start, stop))
        for step in range(stop - _STEPS, max(start + 1, stop - _REACH), -1):
            if self._roles[step] == "assistant" and self._roles[step - 1] != "assistant":
                return [start, *range(step, stop)]
        return list(range(start, stop)) if stop - start <= _REACH else None

    def _following(self, index: int) -> int:
        """The index after the next answer."""
        last = min(len(self._roles), index + _REACH)
        for at in range(index + 1, last):
            if self._roles[at] == "assistant":
                return at + 1
        return last


def _before(roles: Sequence[str], wanted: str) -> list[int]:
    """For each turn, the last turn of a role before it; -1 where there is none."""
    previous, last = [], -1
    for i, role in enumerate(roles):
        previous.append(last)
        if role == wanted:
            last = i
    return previous
