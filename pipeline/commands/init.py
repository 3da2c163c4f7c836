"""``pipeline init``: a first recipe for some data, with comments, that builds as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline import memory
from pipeline.options import completion
from pipeline.options import headings as under
from pipeline.options.command_line import data as data_argument
from pipeline.options.command_line import for_task, of_phase, output, with_options
from pipeline.options.help_page import Command, option
from pipeline.options.local_path import LocalPath
from stages.errors import DataError, UsageError

MODEL = "qwen2.5-7b-instruct"


@click.command(
    name="init",
    cls=Command,
    help="Look at data and write a recipe for it, with comments.",
    heading=under.FIRST,
    examples=(
        ("pipeline init data.jsonl -o first.toml", "A recipe that builds as it is"),
        ("pipeline init data.jsonl --model qwen2-1.5b -o second.toml", "For another model"),
        ("pipeline init --schema > recipe.schema.json", "For editors, which then know the keys"),
    ),
)
@data_argument(required=False)
@for_task("Task to train [the one that the rows fit].")
@option(
    "--model",
    heading=under.MODEL,
    shell_complete=completion.models,
    default=MODEL,
    show_default=True,
    help="Model that is trained.",
)
@with_options(of_phase("source", but=("group_by",)))
@output("The recipe.", LocalPath(dir_okay=False), default="recipe.toml", show_default=True)
@option("--schema", is_flag=True, help="Only print the JSON Schema of recipes, for editors.")
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
    from pipeline.builder.first_recipe import write

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
