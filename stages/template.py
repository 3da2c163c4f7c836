"""A chat template: compiled Jinja in a sandbox, and nothing that depends on the clock.

The environment is the one that Hugging Face's ``apply_chat_template`` documents: block trimming,
``tojson`` without HTML escapes, ``raise_exception``, ``strftime_now``, loop controls, and the
``generation`` tag.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stages.errors import ModelError, RowError


class _Generation(Extension):
    """``{% generation %}`` marks what an assistant says; it prints its body."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Watched(str):
    """A text that stays what it is when the template joins it with others."""

    __slots__ = ()


def _joined(pieces: Iterable[str]) -> str:
    """What Jinja prints, captures and concatenates with: keeps the type of a watched text."""
    found = list(pieces)
    watched = next((piece for piece in found if isinstance(piece, Watched)), None)
    text = "".join(found)
    return text if watched is None else type(watched)(text)


class _Generator(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """``a ~ b``, by the environment's own join."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    concat = staticmethod(_joined)
    code_generator_class = _Generator


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class Template:
    """One chat template and the values that it may print.

    Raises:
        ModelError: the source is not valid Jinja, or ``date`` is not ``YYYY-MM-DD``.
    """

    def __init__(self, source: str, date: str, **tokens: str) -> None:
        self.source = source
        try:
            self._date = datetime.datetime.fromisoformat(date)
        except ValueError as error:
            raise ModelError(f"--date {date!r} is not a date.", "Write YYYY-MM-DD.") from error
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._date.strftime
        environment.globals.update(tokens)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError(f"The chat template is not valid Jinja: {error}.") from error

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
            text = self._template.render(
                messages=messages,
                tools=tools,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
            return str.__str__(text)  # plain again
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise RowError("template_error", f"the chat template refuses it: {error}") from error
        except (RecursionError, MemoryError, AttributeError) as error:
            detail = f"the chat template fails on it: {type(error).__name__}: {error}"
            raise RowError("template_error", detail) from error
