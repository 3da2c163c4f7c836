"""How an option's value is written: as words of a command line, and typed in a recipe.

Each kind of value is declared once. The command line takes its type of click, a recipe its type of
pydantic, whose JSON Schema editors read. Neither library is imported before it is needed. Nothing
compares values, and every command makes these classes, so they have no more methods than they need.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal

from stages.errors import UsageError


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
        typed: its type in a recipe, strict, where its limits do not decide that.
    """

    metavar: str | None = None
    called: ClassVar[str] = "a text"
    many: ClassVar[bool] = False
    typed: ClassVar[Any] = str

    @property
    def words(self) -> str:
        """What a message says that it must be."""
        return self.called

    def of_click(self) -> dict[str, Any]:
        """The arguments of ``click.option``."""
        return {"metavar": self.metavar}

    def of_pydantic(self) -> Any:
        """The type in a recipe, strict."""
        return self.typed

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


def limited(kind: Any, **limits: Any) -> Any:
    """A type within limits, as pydantic has it."""
    from pydantic import Field

    return Annotated[kind, Field(**limits)]


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

    def of_pydantic(self) -> Any:
        return Literal[tuple(self.listed())]

    def loosened(self, value: Any) -> Any:
        dashed = value.replace("_", "-") if isinstance(value, str) else value
        return dashed if dashed in self.listed() else value


def one_of(*words: str) -> OneOf:
    """One of these."""
    return OneOf(listed=lambda: list(words))


@dataclass(eq=False, repr=False)
class Whole(Value):
    """A whole number between two others, both included."""

    least: int | None = None
    most: int | None = None

    @property
    def words(self) -> str:
        return "a whole number" + _between(self.least, self.most)

    def of_click(self) -> dict[str, Any]:
        import click

        return {"type": click.IntRange(self.least, self.most)}

    def of_pydantic(self) -> Any:
        return limited(int, ge=self.least, le=self.most)

    def loosened(self, value: Any) -> Any:
        return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


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

    @property
    def words(self) -> str:
        return "a number" + _between(self.least, self.most, self.above, self.below)

    def of_click(self) -> dict[str, Any]:
        import click

        kind = click.FloatRange(
            self.least if self.above is None else self.above,
            self.most if self.below is None else self.below,
            min_open=self.above is not None,
            max_open=self.below is not None,
        )
        return {"type": kind, "metavar": self.metavar}

    def of_pydantic(self) -> Any:
        limits = {"ge": self.least, "le": self.most, "gt": self.above, "lt": self.below}
        return limited(float, **limits, allow_inf_nan=False)

    def loosened(self, value: Any) -> Any:
        return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
NUMBER = re.compile(r"[+-]?([0-9]{1,19}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def _between(
    least: float | None,
    most: float | None,
    above: float | None = None,
    below: float | None = None,
) -> str:
    if below is not None:
        return f" from {least or 0:g} to below {below:g}"
    if above is not None:
        return f" above {above:g}" + (f" and at most {most:g}" if most is not None else "")
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f" of at least {least}"
    return f" of at most {most}" if most is not None else ""


class Switch(Value):
    """On or off: ``--name`` and ``--no-name``."""

    called = "true or false"
    typed = bool

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

    def of_pydantic(self) -> Any:
        return Literal["longest", "max-length"] | super().of_pydantic()

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
        import click

        value = self.loosened(text)
        if not isinstance(value, int) or value < 1:
            raise click.BadParameter(f"{text!r} is not {self.words}.")
        return value

    def of_pydantic(self) -> Any:
        return limited(int, ge=1)

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

    def loosened(self, value: Any) -> Any:
        if isinstance(value, Mapping) and set(value) == {"command"}:
            value = value["command"]
        return plain(value)

    def settled(self, value: Any) -> Any:
        if not value.strip():
            raise UsageError("--notify is empty.", "Give a command, or leave it out.")
        return value
