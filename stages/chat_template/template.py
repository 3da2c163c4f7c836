"""A chat template: compiled Jinja in a sandbox, whose output never depends on the clock.

The environment is the one that Hugging Face's ``apply_chat_template`` documents: block trimming,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, loop controls, and the
``generation`` tag.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from stages.chat_template.costs import bounded, plain_format
from stages.chat_template.sandbox import BUDGET, Sandbox
from stages.errors import ModelError, RowError

LONGEST = 1 << 16  # characters of a template; vendors' have 20,000 at most, and compile at once
_UNCOMPILABLE = (TemplateError, SyntaxError, RecursionError, MemoryError, OverflowError, ValueError)
_LONGEST_MESSAGE = 300
_LONGEST_DETAIL = 400  # an error may quote a key of any length
_WIDEST_SETTING = 16  # characters of an indent or of both separators
_HARMLESS = "Give a template that only prints the conversation with --chat-template."


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant says; it prints its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class WatchedText(str):
    """A text whose type survives when the template joins it with others."""

    __slots__ = ()


def _joined(pieces: Iterable[str]) -> str:
    """Join texts for Jinja: what is joined with a watched text is watched, too."""
    texts = list(pieces)
    watched = next((piece for piece in texts if isinstance(piece, WatchedText)), None)
    text = "".join(texts)
    return text if watched is None else type(watched)(text)


class _Environment(Sandbox):
    joined = staticmethod(_joined)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    for setting in (indent, separators):
        if len(str(setting)) > _WIDEST_SETTING:
            raise SecurityError(f"tojson does not take {str(setting)[:20]!r}")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        return encoder.encode(value)
    return "".join(bounded(encoder.iterencode(value)))  # as deep as it nests, it indents


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message)[:_LONGEST_MESSAGE])


def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.add_filter("tojson", _tojson)
    return environment


@functools.lru_cache(maxsize=8)
def _code(source: str) -> CodeType:
    """A chat template as code, which has no state: a build makes its template eight times."""
    return _environment().compile(source)


def parsed_tree(source: str) -> nodes.Template:
    """A chat template's syntax tree.

    Raises:
        ModelError: the source is not valid Jinja.
    """
    with _compiling():
        return _environment().parse(source)


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    try:
        yield
    except SecurityError as error:
        raise ModelError(f"The chat template is refused: {error}.", _HARMLESS) from error
    except _UNCOMPILABLE as error:  # ValueError: a number of thousands of digits
        raise ModelError(f"The chat template is not valid Jinja: {error}.") from error


class Template:
    """One chat template and the values that it may print.

    Raises:
        ModelError: the source is too long or not valid Jinja, or ``date`` is not ``YYYY-MM-DD``.
    """

    def __init__(self, source: str, date: str, **tokens: str) -> None:
        self.source = source
        if len(source) > LONGEST:
            raise ModelError(
                f"The chat template has {len(source)} characters; the limit is {LONGEST}.",
                "Give the model's own, or a shorter one with --chat-template.",
            )
        try:
            self._date = datetime.datetime.fromisoformat(date)
        except ValueError as error:
            raise ModelError(f"--date {date!r} is not a date.", "Write YYYY-MM-DD.") from error
        environment = _environment()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime
        environment.globals.update(tokens)
        self._environment = environment
        with _compiling():
            self._template = environment.template_class.from_code(
                environment, _code(source), environment.make_globals(None)
            )

    def _strftime(self, pattern: str) -> str:
        plain_format(pattern)
        if len(pattern) > _LONGEST_MESSAGE:
            raise SecurityError("the date format is too long")
        return self._date.strftime(pattern)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        Raises:
            RowError: the template refuses it, or fails on it.
        """
        try:
            self._environment.left = BUDGET
            text = self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
            return str.__str__(text)  # a plain string, also of a watched text
        except SecurityError as error:
            told = f"is refused: {error}"
            cause: Exception = error
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            told, cause = f"refuses it: {error}", error
        except (RuntimeError, MemoryError, AttributeError) as error:  # also recursion
            told, cause = f"fails on it: {type(error).__name__}: {error}", error
        detail = f"the chat template {told}"[:_LONGEST_DETAIL]
        raise RowError("template_error", detail) from cause


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
_HARMLESS_TEXT = {"__new__", "__init__", "__class__", "__getattribute__", "__doc__", "__dir__"}
_HARMLESS_TEXT |= {"__reduce__", "__reduce_ex__", "__sizeof__", "__setattr__", "__delattr__"}
_HARMLESS_TEXT |= {"__init_subclass__", "__subclasshook__", "__repr__", "__getnewargs__"}
_HARMLESS_TEXT |= {"__getstate__", "__hash__"}
for _name in set(dir(str)) - set(vars(Placeholder)) - _HARMLESS_TEXT:
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
