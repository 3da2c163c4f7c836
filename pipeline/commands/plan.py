"""``pipeline plan``: what a build would give, without building it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipeline import memory, tasks
from pipeline.options.command_line import CHANGES, SET, config_from, given_flags, with_options
from stages.errors import DataError


def print_plan(config: Any, as_json: bool) -> None:
    """Print the forecast of a build whose task is known."""
    from pipeline.estimate.forecast import forecast

    _end(_print(forecast(config), as_json))


def _print(estimate: Any, as_json: bool) -> bool:
    """Print a forecast; whether the build would stop."""
    from pipeline.estimate import page
    from pipeline.estimate.forecast import would_stop

    if as_json:
        click.echo(json.dumps(page.as_json(estimate), ensure_ascii=False))
    else:
        click.echo(page.as_text(estimate))
    return would_stop(estimate)


def _end(stops: bool) -> None:
    if stops:  # the status that the build would end with
        raise click.exceptions.Exit(DataError.exit_code)


def _print_recipe(recipe: Path, changes: tuple[str, ...], flags: Any, as_json: bool) -> None:
    """Print the forecast of each build of a recipe."""
    from pipeline.estimate.forecast import forecast
    from pipeline.options.recipe import builds_of

    configs = builds_of(recipe, changes, flags)
    stops = False
    for config in configs:
        if len(configs) > 1 and not as_json:
            click.echo(f"build     {config.run.output}")
        stops |= _print(forecast(config), as_json)
    _end(stops)


@click.command(name="plan", help="Show what would be built, from a sample; write nothing.")
@click.argument("data", nargs=-1, required=True, metavar="DATA...|RECIPE.toml")
@click.option(
    "--task", type=click.Choice(tasks.names()), help="Task to train [the one that the rows fit]."
)
@with_options((SET,), CHANGES)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(
    data: tuple[str, ...], task: str | None, changes: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Format and evidence, first rows, rejects, lengths and packing."""
    memory.without_pandas()
    if data[0].endswith(".toml") and len(data) == 1 and Path(data[0]).is_file():
        flags = given_flags(given) | ({"task": task} if task else {})
        _print_recipe(Path(data[0]), changes, flags, as_json)
        return
    if changes:
        raise click.UsageError("--set changes a recipe; give its file.")
    if given["model"] is None:
        raise click.UsageError("Missing option '--model'.")
    if task is not None:
        print_plan(config_from(task, data, given), as_json)
        return
    from pipeline.estimate.fitting import fitting, looked_at
    from pipeline.estimate.forecast import of_glimpses

    files, looks = looked_at(data, given)
    config = config_from(fitting(data, given, looks), data, given)
    _end(_print(of_glimpses(config, files, looks), as_json))
