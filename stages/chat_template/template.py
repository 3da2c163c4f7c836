"""A chat template: compiled Jinja in a sandbox, whose output never depends on the clock.

The environment is the one that Hugging Face's ``apply_chat_template`` documents: block trimming,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, loop controls, and the
``generation`` tag.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from stages.chat_template import costs, sandbox
from stages.chat_template.segments import Placeholder
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


def _joined(pieces: Iterable[str]) -> str:
    """Join texts for Jinja: what is joined with a placeholder is watched, too."""
    texts = list(pieces)
    text = "".join(texts)
    return Placeholder(text) if any(isinstance(one, Placeholder) for one in texts) else text


class _Environment(sandbox.Sandbox):
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
    return "".join(costs.bounded(encoder.iterencode(value)))  # as deep as it nests, it indents


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
        self._keywords: dict[str, Any] = {}
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

    def given(self, keywords: Mapping[str, Any]) -> Template:
        """The template with keywords for every rendering."""
        template = copy.copy(self)
        template._keywords = dict(keywords)
        return template

    def _strftime(self, pattern: str) -> str:
        costs.plain_format(pattern)
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
            self._environment.left = sandbox.BUDGET
            text = self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **{**self._keywords, **variables},
            )
            return str.__str__(text)  # a plain string, also of a placeholder
        except SecurityError as error:
            told = f"is refused: {error}"
            cause: Exception = error
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            told, cause = f"refuses it: {error}", error
        except (RuntimeError, MemoryError, AttributeError) as error:  # also recursion
            told, cause = f"fails on it: {type(error).__name__}: {error}", error
        raise RowError("template_error", f"the chat template {told}"[:_LONGEST_DETAIL]) from cause


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
