"""``pipeline build``: the build that a TOML recipe describes, for scheduled runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.options import BUILD, OUTPUT, config_from, with_options
from stages import toml_file
from stages.errors import UsageError

_ALSO = ("task", "data")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = toml_file.read(path)
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Mend that line.") from error
    missing = [name for name in (*_ALSO, "model") if name not in found]
    if missing:
        raise UsageError(
            f"{path} lacks {', '.join(missing)}.", "A recipe names task, model and data."
        )
    return found


@click.command(add_help_option=False)
@with_options(BUILD)
def _options(**given: Any) -> dict[str, Any]:
    """Exists for its parameters: a recipe's values are checked like those of the command line."""
    return given


def _flat(table: dict[str, Any]) -> list[tuple[str, Any]]:
    """A table's entries, those of inner tables under dotted names."""
    found = []
    for key, value in table.items():
        inner = _flat(value) if isinstance(value, dict) else [("", value)]
        found += [(f"{key}.{name}" if name else key, item) for name, item in inner]
    return found


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
    if isinstance(value, dict) and option.metavar and "=" in option.metavar:
        value = [f"{left}={right}" for left, right in _flat(value)]
    values = value if option.multiple and isinstance(value, list) else [value]
    if any(isinstance(one, bool | dict | list) for one in values):
        raise TypeError("a list of texts" if option.multiple else "one text or number")
    return [word for one in values for word in (flag, str(one))]


def _arguments(recipe: dict[str, Any], path: Path) -> list[str]:
    """The recipe's options as the command line would have them.

    Raises:
        UsageError: a name is no option, stands there twice, or has a value of another type.
    """
    options = [p for p in _options.params if isinstance(p, click.Option)]
    known = {option.opts[-1].lstrip("-").replace("-", "_"): option for option in options}
    arguments = []
    for key, value in recipe.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: there is no option {key!r}.", "See: pipeline run sft --help")
        if name != key and name in recipe:
            raise UsageError(f"{path}: {key} stands there twice.", f"Leave {name} out.")
        option = known[name]
        try:
            arguments += _spelled(value, option)
        except TypeError as error:
            raise UsageError(f"{path}: {key} must be {error}, not {value!r}.") from error
    return arguments


@click.command(name="build", help="Build what a TOML recipe describes: task, data and any option.")
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_options(OUTPUT)
def COMMAND(recipe: Path, as_json: bool, quiet: bool) -> None:
    """Paths of the recipe are taken from where the command runs."""
    from pipeline.progress import build_and_report

    found = _read(recipe)
    task, data = (found.pop(name) for name in _ALSO)
    data = [data] if isinstance(data, str) else data
    if not isinstance(data, list) or not data or not all(isinstance(one, str) for one in data):
        raise UsageError(f"{recipe}: data must be paths, not {data!r}.", 'data = ["rows.jsonl"]')
    if task not in ("sft", "rm", "prm"):
        raise UsageError(f"{recipe}: there is no task {task!r}.", "Known: sft, rm, prm.")
    arguments = _arguments(found, recipe)
    given = _options.main(arguments, prog_name=str(recipe), standalone_mode=False)
    build_and_report(config_from(task, tuple(data), given), as_json, quiet)
