"""The options that commands share, as click has them; they follow from their declarations."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline import secrets, tasks
from pipeline.options import config, shells, values
from pipeline.options import help_page as under
from pipeline.options.build_options import EVERY, OPTIONS, PHASE_OF, default_cache
from pipeline.options.help_page import Choice, Option, argument, option
from pipeline.options.many_values import Option as Declared
from pipeline.options.paths import FOLDER
from stages.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

_FIRST = ("model", "output")  # of a command's help; the others follow in the order of their phases


def _of_click(option: Declared, *, required: bool, hidden: bool = False) -> Decorator:
    flag = option.flags[-1]
    settings = option.value.of_click() | {"help": option.help}
    settings |= {"cls": Option, "heading": option.heading}
    if option.name in shells.OF_OPTION:
        settings["shell_complete"] = shells.OF_OPTION[option.name]
    elif isinstance(option.value, values.OneOf):
        settings["shell_complete"] = shells.of_words(option.value.listed)
    names = [option.name, *option.flags]
    if isinstance(option.value, values.Switch):
        names[-1] = f"{flag}/{flag.replace('--', '--no-', 1)}"
    if option.value.many:
        settings["multiple"] = True
    if option.default:
        settings["default"] = option.default
    needed = required and option.name == "model"
    return click.option(*names, **settings, required=needed, hidden=hidden)


def _all(*, required: bool) -> dict[str, Decorator]:
    names = sorted(OPTIONS, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    flags = [OPTIONS[name] for name in names if OPTIONS[name].flags]
    return {option.name: _of_click(option, required=required) for option in flags}


_BY_NAME = _all(required=True)
BUILD = tuple(_BY_NAME.values())
CHANGES = tuple(_all(required=False).values())  # of a recipe, which has a model

# ``--debug``, ``--log-format`` and ``--trust`` are read from the raw arguments by
# ``messages.session``, since they also say how an error in the arguments is told.
OUTPUT = (
    option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object: status, message, figures, paths, manifest.",
    ),
    option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=False,
        expose_value=False,
        help="Messages and progress on stderr as text, or as lines of JSON.",
    ),
    option("--quiet", is_flag=True, help="Print no progress and no summary."),
)


# What is said of a recipe.
OF_RECIPE = (
    option(
        "--set", "changes", heading=under.RUN, multiple=True, metavar="KEY=VALUE",
        help="Change a key of the recipe: max-length=2048, map.prompt=question, "
        "source.math.system=...",
    ),
    option(
        "--trust", heading=under.RUN, is_flag=True, expose_value=False,
        help="Allow recipe keys that run code: notify, expectations in Python, a Ray cluster.",
    ),
)  # fmt: skip


# The ways to name what a command works on; each with its sentence of help.
def data(metavar: str = "DATA...", *, required: bool = True) -> Decorator:
    """The argument of inputs."""
    text = OPTIONS["data"].help
    if "RECIPE" in metavar:
        text += " Or a TOML recipe."
    return argument(
        "data", nargs=-1, required=required, metavar=metavar, help=text,
        heading=under.DATA, shell_complete=shells.data,
    )  # fmt: skip


def recipe_in(data: Sequence[str]) -> Path | None:
    """The recipe that the argument of inputs names; None where it names inputs.

    Raises:
        UsageError: it is not there.
    """
    if len(data) != 1 or not data[0].endswith(".toml"):
        return None
    path = Path(data[0])
    if not path.is_file():
        raise UsageError(
            f"There is no recipe {path}.", "Check the path, or write one: pipeline init."
        )
    return path


def folder(name: str, metavar: str, text: str, kind: click.ParamType[Any] = FOLDER) -> Decorator:
    """An argument that is a folder, a build's if nothing else is said."""
    return argument(
        name,
        metavar=metavar,
        type=kind,
        help=text,
        heading=under.DATA,
        shell_complete=shells.builds,
    )


JSON = option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
CACHE = option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    default=default_cache,
    heading=under.RUN,
    help=OPTIONS["cache_dir"].help,
)


def for_task(**settings: Any) -> Decorator:
    """``--task`` of a command that is not one of a task alone."""
    return option("--task", heading=under.TRAINED, type=Choice(tasks.names()), **settings)


def output(kind: click.ParamType[Any], **settings: Any) -> Decorator:
    """``-o`` of a command that writes something else than a build."""
    return option("-o", "--output", heading=under.OUTPUT, type=kind, **settings)


def of_task(task: tasks.Task) -> tuple[Decorator, ...]:
    """The options of a build for one task: those that every task reads, and its own."""
    own = set(task.options)
    others = {option for name in tasks.names() for option in tasks.load(name).options} - own
    return tuple(
        one if tasks.concerns(name, task) else _of_click(OPTIONS[name], required=True, hidden=True)
        for name, one in _BY_NAME.items()
        if name not in others
    )


def of_phase(phase: str, but: tuple[str, ...] = ()) -> tuple[Decorator, ...]:
    """The options of one phase, without some."""
    names = [name for name in _BY_NAME if PHASE_OF[name] == phase and name not in but]
    return tuple(_BY_NAME[name] for name in names)


def not_read(name: str, task: str) -> str | None:
    """Which tasks read an option that this one does not, as a sentence; None where it does."""
    readers = tasks.readers_of(name)
    if not readers or task in readers:
        return None
    return f"--{name.replace('_', '-')} is an option of {' and '.join(readers)}, not of {task}."


def chosen(*names: str) -> tuple[Decorator, ...]:
    """Some of the build's options, for a command that takes no data."""
    return tuple(_BY_NAME[name.replace("-", "_")] for name in names)


def with_options(*stacks: tuple[Decorator, ...]) -> Callable[[Command], Command]:
    """Add stacks of options to a command, in their order."""

    def decorate(command: Command) -> Command:
        for one in reversed([one for stack in stacks for one in stack]):
            command = one(command)
        return command

    return decorate


def given_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a running command's options that stand in its arguments."""
    source = click.get_current_context().get_parameter_source
    said = click.core.ParameterSource.COMMANDLINE
    return {name: value for name, value in given.items() if source(name) is said}


def stem(path: str) -> str:
    """What a build of this input is called by default."""
    if path == "-":
        return "stdin"
    name = Path(secrets.redacted(path).partition("?")[0] if "://" in path else path).name or "data"
    return re.split("[.:]", name)[0] or "data"


def default_output(first: str, task: str, model: str) -> Path:
    """Where a build goes by default: ``<stem>-<task>-<model>``."""
    model = model.rstrip("/").split("/")[-1].lower().removesuffix(".toml")
    return Path(f"{stem(first)}-{task}-{model}")


def unread(task: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options that were given, are not what they are by default, and are not read by the task;
    each with a sentence."""
    for name, value in given.items() if isinstance(task, str) else ():
        foreign = not_read(name, task)
        if foreign is not None and value != EVERY[name].default:
            yield name, foreign


def settled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were written, as ``Config`` has them.

    Raises:
        UsageError: one has no such value.
    """
    return {name: OPTIONS[name].value.settled(value) for name, value in given.items()}


def config_from(task: str, data: tuple[str, ...], given: Mapping[str, Any]) -> config.Config:
    """The build's options from what click parsed.

    Raises:
        UsageError: they are not valid, or do not go together.
    """
    written = {name: value for name, value in given.items() if value is not None}
    for _, foreign in unread(task, written):
        raise UsageError(foreign, "Leave it out.")
    values = settled(written)
    values.setdefault("output", default_output(data[0], task, values["model"]))
    return config.Config.of(task, data, **values)


def configs_of(given: dict[str, Any], trust: bool) -> tuple[config.Config, ...]:
    """The builds that arguments describe: those of a recipe, or one.

    Args:
        given: what click parsed, ``data``, ``task`` and ``changes`` among it.

    Raises:
        UsageError: they describe none.
    """
    data, task, changes = (given.pop(name) for name in ("data", "task", "changes"))
    if (recipe := recipe_in(data)) is not None:
        from pipeline.options.recipe import builds_of

        flags = given_flags(given) | ({"task": task} if task else {})
        return builds_of(recipe, changes, flags, trust)
    if changes:
        raise click.UsageError("--set changes a recipe; give its file.")
    for name, value in (("--task", task), ("--model", given["model"])):
        if value is None:
            raise click.UsageError(f"Missing option '{name}'.")
    return (config_from(str(task), data, given),)
