"""``pipeline build``: the build that a TOML recipe describes, for scheduled runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.messages.session import current
from pipeline.options.command_line import OUTPUT, with_options
from stages.errors import UsageError
from stages.files import toml_file

_ALSO = ("task", "data")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = toml_file.read(path)
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from error
    return content


def _require_complete(options: dict[str, Any], path: Path) -> None:
    missing = [name for name in (*_ALSO, "model") if name not in options]
    if missing:
        raise UsageError(
            f"{path} has no {', '.join(missing)}.", "A recipe needs task, model and data."
        )


def _notified(table: object, path: Path) -> str | None:
    """The command of the recipe's table ``[notify]``."""
    if table is None:
        return None
    command = table.get("command") if isinstance(table, dict) and len(table) == 1 else None
    if not isinstance(command, str) or not command.strip():
        raise UsageError(
            f"{path}: [notify] must have one key, command, not {table!r}.",
            '[notify]\ncommand = "mail -s build me@example.org"',
        )
    return command


@click.command(name="build", help="Build from a TOML recipe: task, data and any option.")
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_options(OUTPUT)
def COMMAND(recipe: Path, as_json: bool, quiet: bool) -> None:
    """Paths of the recipe are taken from where the command runs."""
    from pipeline.options.table import config_of
    from pipeline.run_build import build_and_report

    options = _read(recipe)
    notified = _notified(options.pop("notify", None), recipe)
    session = current()
    session.notify = session.notify or notified  # before anything else of the recipe can be wrong
    _require_complete(options, recipe)
    task, data = (options.pop(name) for name in _ALSO)
    build_and_report(config_of(task, data, options, str(recipe)), as_json, quiet)
