"""``pipeline init``: a first recipe for some data, with comments, that builds as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline import memory, tasks
from pipeline.options.command_line import of_phase, with_options
from pipeline.options.local_path import LocalPath
from stages.errors import DataError, UsageError

MODEL = "qwen2.5-7b-instruct"


@click.command(name="init", help="Look at data and write a recipe for it, with comments.")
@click.argument("data", nargs=-1)
@click.option(
    "--task", type=click.Choice(tasks.names()), help="Task to train [the one that the rows fit]."
)
@click.option("--model", default=MODEL, show_default=True, help="Model that is trained.")
@with_options(of_phase("source", but=("group_by",)))
@click.option(
    "-o",
    "--output",
    type=LocalPath(dir_okay=False),
    default="recipe.toml",
    show_default=True,
    help="The recipe.",
)
@click.option("--schema", is_flag=True, help="Only print the JSON Schema of recipes, for editors.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(
    data: tuple[str, ...], task: str | None, output: Path, schema: bool, **given: Any
) -> None:
    """The path of the recipe goes to stdout."""
    if schema:
        from pipeline.options.recipe_model import schema_text

        click.echo(schema_text(), nl=False)
        return
    if not data:
        raise click.UsageError("Missing argument 'DATA...'.")
    if output.exists():
        raise UsageError(f"{output} is there already.", "Name another file with -o, or remove it.")
    if "-" in data:
        raise UsageError("Standard input can be read only once.", "Write the rows to a file first.")
    memory.without_pandas()
    from pipeline.estimate.first_recipe import write

    why = write(output, data, task, given)
    click.echo(str(output))
    if why:
        listed = "".join(f"\n  {one}" for one in why)
        raise DataError(
            f"{output} is written, but a build of it is refused:{listed}",
            "Change the recipe, another model included, and see what it gives with: "
            f"pipeline plan {output}",
        )
    click.echo(f"look at it, then: pipeline plan {output}; pipeline build {output}", err=True)
