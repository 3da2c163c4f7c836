"""Options as a table: what a TOML recipe or a Python call gives, checked like the command line."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import click

from pipeline import tasks
from pipeline.options.command_line import BUILD, config_from, with_options
from pipeline.options.config import Config
from stages.errors import UsageError


@click.command(add_help_option=False)
@with_options(BUILD)
def _options(**given: Any) -> dict[str, Any]:
    """Exists for its parameters: a table's values are parsed as those of the command line."""
    return given


def _flat(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A table's entries, those of inner tables under dotted names."""
    entries = []
    for key, value in table.items():
        inner = _flat(value) if isinstance(value, Mapping) else [("", value)]
        entries += [(f"{key}.{name}" if name else key, item) for name, item in inner]
    return entries


def _spelled(value: Any, option: click.Option) -> list[str]:
    """An option's value as words; no other option is taken for it.

    Raises:
        TypeError: the option takes another type.
    """
    flag = option.opts[-1]
    if option.is_flag:
        if not isinstance(value, bool):
            raise TypeError("true or false")
        return [flag if value else option.secondary_opts[-1]]
    # {prompt = "question"} is --map prompt=question; tables in tables become dotted names.
    if isinstance(value, Mapping) and option.metavar and "=" in option.metavar:
        value = [f"{left}={right}" for left, right in _flat(value)]
    values = value if option.multiple and isinstance(value, list | tuple) else [value]
    if any(isinstance(one, bool | Mapping | list | tuple) for one in values):
        raise TypeError("a list of texts" if option.multiple else "one text or number")
    words = [fspath(one) if isinstance(one, PathLike) else str(one) for one in values]
    return [word for text in words for word in (flag, text)]


def _arguments(table: Mapping[str, Any], where: str) -> list[str]:
    """The table's options as the command line would have them.

    Raises:
        UsageError: a name is not an option, stands there twice, or has a value of another type.
    """
    options = [p for p in _options.params if isinstance(p, click.Option)]
    known = {option.opts[-1].lstrip("-").replace("-", "_"): option for option in options}
    arguments = []
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(
                f"{where}: there is no option {key!r}.", "See: pipeline run sft --help"
            )
        if name != key and name in table:
            raise UsageError(f"{where}: {key} is given twice.", f"Leave {name} out.")
        try:
            arguments += _spelled(value, known[name])
        except TypeError as error:
            raise UsageError(f"{where}: {key} must be {error}, not {value!r}.") from error
    return arguments


def config_of(task: object, data: object, table: Mapping[str, Any], where: str) -> Config:
    """The build that a table describes.

    Args:
        task: its name; ``data``: a path or several.
        table: options by their names on the command line, with ``_`` or ``-``; flags as booleans,
            options that may be given several times as lists, NAME=VALUE options as tables.
        where: what a message calls the table.

    Raises:
        UsageError: something of it is not an option, or has a value that the option does not take.
    """
    given: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
    paths = [fspath(one) for one in given if isinstance(one, str | PathLike)]
    if not paths or len(paths) < len(given):
        raise UsageError(f"{where}: data must be paths, not {data!r}.", 'data = ["rows.jsonl"]')
    known = tasks.names()
    if task not in known:
        raise UsageError(f"{where}: there is no task {task!r}.", f"Known: {', '.join(known)}.")
    arguments = _arguments(table, where)
    try:
        values = _options.main(arguments, prog_name=where, standalone_mode=False)
    except click.UsageError as error:
        raise UsageError(f"{where}: {error.format_message()}") from error
    return config_from(str(task), tuple(paths), values)
