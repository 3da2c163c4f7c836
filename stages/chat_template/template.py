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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from stages.chat_template.costs import bounded, plain_format
from stages.chat_template.sandbox import BUDGET, Sandbox
from stages.errors import ModelError, RowError

LONGEST = 1 << 16  # characters of a template; vendors' have 20,000 at most, and compile at once
_UNCOMPILABLE = (
    TemplateError,
    SyntaxError,
    RecursionError,
    MemoryError,
    OverflowError,
    ValueError,
)
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
