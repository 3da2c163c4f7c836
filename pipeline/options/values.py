"""How an option's value is written: as words of a command line, and typed in a recipe.

Each kind of value is declared once. The command line takes its type of click; a recipe its JSON
Schema, which editors read and ``misfit`` checks. Nothing compares values, and every command makes
these classes, so they have no more methods than they need.
"""

import datetime
import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar

import click

from stages.errors import UsageError
from stages.files.toml_file import Place

Schema = dict[str, Any]


class Words(str):
    """A value that was not typed by TOML: of an environment variable, or of ``--set``."""

    __slots__ = ()


@dataclass(eq=False, repr=False)
class Value:
    """Any text, and what all kinds have in common.

    Attributes:
        metavar: what a command's help calls it.
        called: what a message says that it must be, where its limits do not decide that.
        many: whether a command line may have it several times.
    """

    metavar: str | None = None
    called: ClassVar[str] = "a text"
    many: ClassVar[bool] = False

    @property
    def words(self) -> str:
        """What a message says that it must be."""
        return self.called

    def of_click(self) -> dict[str, Any]:
        """The arguments of ``click.option``."""
        return {"metavar": self.metavar}

    def schema(self) -> Schema:
        """The JSON Schema of its usual spelling."""
        return {"type": "string"}

    def spellings(self) -> Schema:
        """The JSON Schema of all that a recipe may have, variables of the environment too."""
        return any_of(*or_variable(self.schema()))

    def loosened(self, value: Any) -> Any:
        """A value in one of the spellings that are also read, in the usual one."""
        return value.isoformat() if isinstance(value, datetime.date) else plain(value)

    def anchored(self, value: Any, folder: str) -> Any:
        """The same, where it is a path that counts from this folder, as it counts from here."""
        del folder
        return value

    def runs(self, value: Any) -> bool:
        """Whether a value is code, or names code, that a build would run."""
        return False

    def settled(self, value: Any) -> Any:
        """What ``Config`` has of it.

        Raises:
            UsageError: it names a file that cannot be read, or is no value.
        """
        return value


Text = Value
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


class Escaped(Value):
    """A text in which ``\\n`` is a line break, ``\\t`` a tab and ``\\\\`` a backslash."""

    def settled(self, value: Any) -> Any:
        return None if value is None else re.sub(r"\\([ntr\\])", lambda m: _ESCAPES[m[1]], value)


VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"}


def any_of(*ways: Schema) -> Schema:
    """The schema of what one of these takes."""
    return {"anyOf": [*ways]} if len(ways) > 1 else ways[0]


def or_variable(alone: Schema) -> list[Schema]:
    """A schema, and that of a variable where no text is taken anyway."""
    return [alone] if alone == {"type": "string"} else [alone, VARIABLE]


def limited(kind: str, **limits: Any) -> Schema:
    """A schema with the limits that there are."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return dict(sorted({"type": kind, **given}.items()))


_TYPES = {"string": str, "boolean": bool, "integer": int, "number": float, "array": list}
_OUTSIDE: dict[str, Callable[[Any, Any], bool]] = {
    "enum": lambda value, words: value not in words,
    "pattern": lambda value, pattern: re.fullmatch(pattern, value) is None,
    "minimum": operator.lt,
    "maximum": operator.gt,
    "exclusiveMinimum": operator.le,
    "exclusiveMaximum": operator.ge,
    "minItems": lambda value, least: len(value) < least,
}


def misfit(value: Any, schema: Schema) -> Place | None:
    """Where a value does not fit its schema, as keys inside of it; None where it does."""
    if "anyOf" in schema:
        return () if all(misfit(value, way) is not None for way in schema["anyOf"]) else None
    kind: Any = _TYPES.get(schema["type"], dict)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return ()
    if kind is float and not math.isfinite(value):
        return ()
    if any(rule in schema and wrong(value, schema[rule]) for rule, wrong in _OUTSIDE.items()):
        return ()
    if kind in (list, dict):
        each = schema["items" if kind is list else "additionalProperties"]
        for key, one in enumerate(value) if kind is list else value.items():
            if (found := misfit(one, each)) is not None:
                return (key, *found)
    return None


@dataclass(eq=False, repr=False)
class OneOf(Value):
    """One of some words: they are listed when they are needed, since other packages may add some.

    Attributes:
        listed: gives them.
        checked: whether a command line checks them too; else what reads the option does.
    """

    listed: Callable[[], list[str]] = list
    checked: bool = True

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.listed())}"

    def of_click(self) -> dict[str, Any]:
        from pipeline.options.help_page import Choice

        kind = {"type": Choice(self.listed())} if self.checked else {}
        return {"metavar": self.metavar, **kind}

    def schema(self) -> Schema:
        return limited("string", enum=self.listed())

    def loosened(self, value: Any) -> Any:
        dashed = value.replace("_", "-") if isinstance(value, str) else value
        return dashed if dashed in self.listed() else value


def one_of(*words: str) -> OneOf:
    """One of these."""
    return OneOf(listed=lambda: list(words))


@dataclass(eq=False, repr=False)
class Number(Value):
    """A number between two others, both included.

    Attributes:
        above: it must be greater than this; ``below``: less than this.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    called = "a number"
    kind: ClassVar[str] = "number"

    @property
    def words(self) -> str:
        least, most, above, below = self.least, self.most, self.above, self.below
        limits = f" of at most {most}" if most is not None else ""
        if below is not None:
            limits = f" from {least or 0:g} to below {below:g}"
        elif above is not None:
            limits = f" above {above:g}" + (f" and at most {most:g}" if most is not None else "")
        elif least is not None:
            limits = f" of at least {least}" if most is None else f" from {least} to {most}"
        return self.called + limits

    def of_click(self) -> dict[str, Any]:
        ranged: Any = click.IntRange if self.kind == "integer" else click.FloatRange
        kind = ranged(
            self.least if self.above is None else self.above,
            self.most if self.below is None else self.below,
            min_open=self.above is not None,
            max_open=self.below is not None,
        )
        kind.name = self.called.removeprefix("a ")
        return {"type": kind, "metavar": self.metavar}

    def schema(self) -> Schema:
        closed = {"minimum": self.least, "maximum": self.most}
        open_ = {"exclusiveMinimum": self.above, "exclusiveMaximum": self.below}
        return limited(self.kind, **closed, **open_)

    def loosened(self, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole or (isinstance(value, str) and NUMBER.fullmatch(value)):
            with suppress(OverflowError):
                return float(value)
        return value


NUMBER = re.compile(r"[+-]?([0-9]{1,19}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


class Whole(Number):
    """A whole one."""

    called = "a whole number"
    kind = "integer"

    def loosened(self, value: Any) -> Any:
        return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


class Switch(Value):
    """On or off: ``--name`` and ``--no-name``."""

    called = "true or false"

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def loosened(self, value: Any) -> Any:
        known = {"true": True, "false": False}
        return known.get(value, value) if isinstance(value, Words) else value


class Width(Whole):
    """``longest``, ``max-length``, or a number of tokens."""

    @property
    def words(self) -> str:
        return f"longest, max-length or a number of tokens, at least {self.least}"

    def of_click(self) -> dict[str, Any]:
        return {"metavar": self.metavar}

    def schema(self) -> Schema:
        return any_of(limited("string", enum=["longest", "max-length"]), super().schema())

    def settled(self, value: Any) -> Any:
        return str(value)


def plain(value: Any) -> Any:
    """A text as that and nothing else; other values as they are."""
    if isinstance(value, PathLike):
        return fspath(value)
    return str(value) if isinstance(value, Words) else value


class Amount(Value):
    """A number of things, also as ``"20k"``, ``"50M"`` or ``"1.5B"``."""

    called = 'a whole number above 0, or a text such as "50M"'

    def of_click(self) -> dict[str, Any]:
        return {"type": self._read, "metavar": "AMOUNT"}

    def _read(self, text: str) -> int:
        """Of a word of a command line."""
        value = self.loosened(text)
        if not isinstance(value, int) or value < 1:
            raise click.BadParameter(f"{text!r} is not {self.words}.")
        return value

    def schema(self) -> Schema:
        return limited("integer", minimum=1)

    def spellings(self) -> Schema:
        return any_of(self.schema(), VARIABLE, {"type": "string", "pattern": f"^{AMOUNT.pattern}$"})

    def loosened(self, value: Any) -> Any:
        found = AMOUNT.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        from fractions import Fraction  # few recipes have amounts in words

        exact = Fraction(found[1]) * 1000 ** " kmb".index((found[2] or " ").lower())
        return int(exact) if exact.denominator == 1 else value


AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([kKmMbB]?)")


class Running(Value):
    """What runs, or has the build run it: the address of a cluster, whose answers are unpickled."""

    def runs(self, value: Any) -> bool:
        return True


class Command(Running):
    """A command: in a recipe also a table with the one key ``command``."""

    called = "a command of the shell"

    def spellings(self) -> Schema:
        as_table: Schema = {"type": "object", "properties": {"command": self.schema()}}
        as_table |= {"required": ["command"], "additionalProperties": False}
        return any_of(self.schema(), as_table)

    def loosened(self, value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"command"}:
            value = value["command"]
        return plain(value)

    def settled(self, value: Any) -> Any:
        if not value.strip():
            raise UsageError("--notify is empty.", "Give a command, or leave it out.")
        return value
