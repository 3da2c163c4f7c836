"""Commands, options and arguments of click whose help is grouped, wrapped at words, with examples.

A command is declared with ``cls=Command`` and has ``examples``; an option may have a ``heading``
(``headings``). The help page has the options under their headings and ends with the examples.
``--debug`` belongs to every command: it is read from the raw arguments (``messages.session``).
"""

import difflib
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline import lines

Row = TypeVar("Row")

# The headings of a command's help, in their order; each option of a build names its own.


DATA = "Data"
MODEL = "Model"
TRAINED = "What is trained"
LAYOUT = "Layout"
OUTPUT = "Output"
LIMITS = "Limits"
RUN = "Run"
ROWS = "Which rows"  # of what looks at a build
DRAWN = "How they are drawn"

ORDER = (DATA, ROWS, MODEL, TRAINED, LAYOUT, OUTPUT, LIMITS, DRAWN, RUN)

# Of an option that names none, by its phase.
OF_PHASE = {"source": DATA, "parts": MODEL, "plan": LAYOUT, "judge": LIMITS, "run": RUN}

# Of the commands, in the help of the program.
FIRST = "First steps"
MORE = "More"

COMMANDS = (FIRST, "Builds", "Look at builds", "Share builds", "Many machines", MORE)


_EDGE = 2**62  # numbers beyond are limits of the machine's integers, which say nothing to a reader


class Page(click.HelpFormatter):
    """Help in lines that break between words only."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """``Usage: pipeline run sft [OPTIONS] DATA...``."""
        self._lines(lines.wrapped(args, self.width, f"{prefix or 'Usage: '}{prog} "))

    def write_text(self, text: str) -> None:
        """Paragraphs, indented as the page is."""
        indent = " " * self.current_indent
        for number, paragraph in enumerate(text.split("\n\n")):
            self._lines([""] if number else [])
            self._lines(lines.wrapped(" ".join(paragraph.split()), self.width, indent))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names and what they are, in two columns."""
        self._lines(lines.entries(rows, self.width, self.current_indent, col_max))

    def write_examples(self, examples: Iterable[tuple[str, str]]) -> None:
        """What each does as a comment, then the command, to be pasted together."""
        self.write_heading("Examples")
        for command, does in examples:
            self._lines(lines.wrapped(does, self.width, "  # "))
            self._lines(lines.command(lines.words(command), self.width, "  "))

    def _lines(self, found: Iterable[str]) -> None:
        for line in found:
            self.write(f"{line}\n")


class Choice(click.Choice[str]):
    """One of some words; for another one the nearest is named."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Click's sentence, with a question."""
        return super().get_invalid_choice_message(value, ctx) + _nearest(str(value), self.choices)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


class Context(click.Context):
    """Uses ``Page``."""

    formatter_class = Page


class Argument(click.Argument):
    """An argument with a sentence of help, under its heading."""

    def __init__(self, *names: Any, heading: str = "", **settings: Any) -> None:
        text: str = settings.pop("help", "")
        super().__init__(*names, **settings)
        self.help, self.heading = text, heading

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its name and its sentence."""
        return self.make_metavar(ctx).strip("[]"), self.help or ""


class Option(click.Option):
    """An option under a heading; what values it takes is said in words."""

    def __init__(self, *names: Any, heading: str = "", **settings: Any) -> None:
        default = settings.get("default")
        settings.setdefault("show_default", bool(default) and not callable(default))
        super().__init__(*names, **settings)
        self.heading = heading
        if self.metavar is None and isinstance(self.type, click.IntRange | click.FloatRange):
            self.metavar = "N"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """How it is spelled; its sentence, its default and its limits."""
        if self.hidden:
            return None
        spelled = ", ".join(self.opts)
        if not self.is_flag and not self.count:
            spelled += f" {self.make_metavar(ctx)}"
        extra = self.get_help_extra(ctx)
        notes = [f"default: {extra['default']}"] if "default" in extra else []
        notes += [words] if (words := limits(self.type)) else []
        notes += ["required"] if "required" in extra else []
        said = f" [{'; '.join(notes)}]" if notes else ""
        return spelled, f"{self.help or ''}{said}".strip()


option = functools.partial(click.option, cls=Option)  # how our commands declare theirs
argument = functools.partial(click.argument, cls=Argument)


def limits(kind: object) -> str:
    """The numbers that a type takes, in words; empty where that is any."""
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return ""
    least = None if kind.min is None or abs(kind.min) > _EDGE else kind.min
    most = None if kind.max is None or abs(kind.max) > _EDGE else kind.max
    low = "" if least is None else f"{'above' if kind.min_open else 'at least'} {least:g}"
    high = "" if most is None else f"{'below' if kind.max_open else 'at most'} {most:g}"
    return ", ".join(filter(None, (low, high)))


def with_debug(command: click.Command) -> click.Command:
    """The same command, with ``--debug`` if it had none."""
    if not any("--debug" in parameter.opts for parameter in command.params):
        text = "Show the traceback of an error."
        debug = Option(["--debug"], is_flag=True, expose_value=False, help=text, heading=RUN)
        command.params.append(debug)
    return command


@functools.cache
def declared() -> dict[str, dict[str, Any]]:
    """Our commands by what is typed: heading, sentence of help, what their own options are for,
    examples, which a test runs."""
    path = Path(__file__).with_name("commands.json")
    found: dict[str, dict[str, Any]] = json.loads(path.read_bytes())
    return found


class _Described(click.Command):
    """What our commands and groups have in common.

    Args:
        examples: commands that a test runs, with what each does.
        heading: under which the program's help lists it.
        says: the sentences of its own options and arguments, by their full names.
    """

    context_class = Context

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        heading: str = MORE,
        says: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.examples, self.heading = tuple(examples), heading
        for one in self.params:
            if says and one.opts[-1] in says:
                one.help = says[one.opts[-1]]
        with_debug(self)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Of every command, also of one that is called without the program around it."""
        return ["-h", "--help"]

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """They stand with the options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """How switches are turned off, and the examples."""
        switches = [one for one in self.params if one.secondary_opts]
        if switches:
            one = switches[-1]
            formatter.write_paragraph()
            formatter.write_text(
                f"A switch is turned off with no-: {one.opts[-1]}, {one.secondary_opts[-1]}."
            )
        if self.examples and isinstance(formatter, Page):
            formatter.write_paragraph()
            formatter.write_examples(self.examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Under their headings; a command with few has one."""
        found = by_heading(self, ctx)
        for heading, rows in found.items():
            with formatter.section(heading if len(found) > 1 else "Options"):
                formatter.write_dl([record for _, record in rows])


class Command(_Described):
    """A command with examples."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Errors know which command they are about."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def command(name: str) -> Callable[[Callable[..., Any]], Command]:
    """Makes a command of a function, as ``commands.json`` declares it."""
    return click.command(name, cls=Command, **declared()[name])


class Group(_Described, click.Group):
    """Commands under one name; those of it that are declared without a class are of ours."""

    command_class = Command
    group_class = type

    def subcommand(self, name: str) -> Callable[[Callable[..., Any]], click.Command]:
        """Makes one of them of a function."""
        return self.command(name, **declared()[f"{self.name} {name}"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """For a name that there is not, the nearest is named."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{_nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands under their headings, then the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole sentence."""
        for heading, rows in self.listed_by_heading(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=16)

    def listed_by_heading(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """The commands under their headings, each with its sentence."""
        named = ((name, self.listed(ctx, name)) for name in self.list_commands(ctx))
        found = _grouped([(one[0], (name, one[1])) for name, one in named if one], COMMANDS)
        return {"Commands": next(iter(found.values()))} if len(found) == 1 else found

    def listed(self, ctx: click.Context, name: str) -> tuple[str, str] | None:
        """Heading and sentence of one of the commands; None of one that is hidden."""
        command = self.get_command(ctx, name)
        if command is None or command.hidden:
            return None
        return getattr(command, "heading", MORE), command.get_short_help_str(1 << 16)


def _grouped(rows: Iterable[tuple[str, Row]], order: Sequence[str]) -> dict[str, list[Row]]:
    """Rows under their headings, those that are not known last."""
    found: dict[str, list[Row]] = {}
    for heading, row in rows:
        found.setdefault(heading, []).append(row)
    place = {heading: number for number, heading in enumerate(order)}
    return dict(sorted(found.items(), key=lambda one: place.get(one[0], len(order))))


def group(
    name: str, cls: type[Group] = Group, **settings: Any
) -> Callable[[Callable[..., Any]], Group]:
    """The same of commands under one name."""
    return click.command(name, cls=cls, **declared()[name], **settings)


def by_heading(
    command: click.Command, ctx: click.Context
) -> dict[str, list[tuple[click.Parameter, tuple[str, str]]]]:
    """What a command takes, under the headings of its help: how it is spelled, and its sentence."""
    shown = [(one, one.get_help_record(ctx)) for one in command.get_params(ctx)]
    rows = [(one, record) for one, record in shown if record is not None and all(record)]
    return _grouped([(getattr(one[0], "heading", "") or RUN, one) for one in rows], ORDER)
