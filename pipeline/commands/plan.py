"""``pipeline plan``: what a build would give, without building it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline import memory, tasks
from pipeline.messages.result import print_object, with_status
from pipeline.messages.session import current
from pipeline.options import headings as under
from pipeline.options.command_line import (
    CHANGES,
    JSON,
    OF_RECIPE,
    config_from,
    given_flags,
    recipe_in,
    with_options,
)
from pipeline.options.command_line import data as data_argument
from pipeline.options.help_page import Choice, Command, Option
from stages.errors import DataError


def print_plan(config: Any, as_json: bool) -> None:
    """Print the forecast of a build whose task is known."""
    from pipeline.builder.forecast import forecast

    _print(forecast(config), as_json)


def _print(estimate: Any, as_json: bool) -> None:
    """Print a forecast, and end as the build would."""
    from pipeline.builder import plan_page

    if as_json:
        print_object(_code(estimate), plan_page.as_json(estimate))
    else:
        click.echo(plan_page.as_text(estimate))
    _end(_code(estimate))


def _code(estimate: Any) -> int:
    """The status that the build would end with."""
    from pipeline.builder.forecast import would_stop

    return DataError.exit_code if would_stop(estimate) else 0


def _end(code: int) -> None:
    if code:
        raise click.exceptions.Exit(code)


def _print_recipe(recipe: Path, changes: tuple[str, ...], flags: Any, as_json: bool) -> None:
    """Print the forecast of each build of a recipe."""
    from pipeline.builder import plan_page
    from pipeline.builder.forecast import forecast
    from pipeline.options.recipe import builds_of

    configs = builds_of(recipe, changes, flags, trust=current().trust)
    if len(configs) == 1:
        print_plan(configs[0], as_json)
        return
    codes, found = [], []
    for config in configs:
        estimate = forecast(config)
        codes.append(_code(estimate))
        if as_json:
            described = with_status(codes[-1], plan_page.as_json(estimate))
            found.append({"output": config.run.shown, **described})
        else:
            click.echo(f"build     {config.run.shown}\n{plan_page.as_text(estimate)}")
    if as_json:
        print_object(max(codes), {"builds": found})
    _end(max(codes))


@click.command(
    name="plan",
    cls=Command,
    help="Show what would be built, from a sample; write nothing.",
    heading=under.FIRST,
    examples=(
        ("pipeline plan data.jsonl --model qwen2-1.5b", "Format, first rows, lengths, packing"),
        (
            "pipeline plan data.jsonl --model qwen2-1.5b --task sft --max-length 1024",
            "For a task and a length",
        ),
        ("pipeline plan recipe.toml", "Every build of a recipe"),
    ),
)
@data_argument("DATA...|RECIPE.toml")
@click.option(
    "--task",
    cls=Option,
    heading=under.TRAINED,
    type=Choice(tasks.names()),
    help="Task to train [the one that the rows fit].",
)
@with_options(OF_RECIPE, CHANGES)
@JSON
def COMMAND(
    data: tuple[str, ...], task: str | None, changes: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Format and evidence, first rows, rejects, lengths and packing."""
    memory.without_pandas()
    recipe = recipe_in(data)
    if recipe is not None:
        flags = given_flags(given) | ({"task": task} if task else {})
        _print_recipe(recipe, changes, flags, as_json)
        return
    if changes:
        raise click.UsageError("--set changes a recipe; give its file.")
    if given["model"] is None:
        raise click.UsageError("Missing option '--model'.")
    if task is not None:
        print_plan(config_from(task, data, given), as_json)
        return
    from pipeline.builder.fitting import fitting, looked_at
    from pipeline.builder.forecast import of_glimpses

    files, looks = looked_at(data, given)
    config = config_from(fitting(data, given, looks), data, given)
    _print(of_glimpses(config, files, looks), as_json)
