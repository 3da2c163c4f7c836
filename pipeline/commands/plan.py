"""``pipeline plan``: what a build would give, without building it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.messages.result import print_object, with_status
from pipeline.messages.session import current
from pipeline.options import command_line as shared
from pipeline.options import help_page as under
from pipeline.options import shells
from pipeline.options.config import Config
from pipeline.options.help_page import command, option
from pipeline.options.paths import LocalPath
from stages.errors import DataError, UsageError

if TYPE_CHECKING:
    from pipeline.builder.forecast import Forecast


def print_plan(config: Config, as_json: bool) -> None:
    """Print the forecast of a build whose task is known."""
    _print_each([config], as_json)


def _print_each(configs: Sequence[Config], as_json: bool) -> None:
    """Print the forecast of each build; several have a line with their output above them."""
    from pipeline.builder.forecast import forecast

    _print(map(forecast, configs), as_json, len(configs) > 1)


def _print(estimates: "Iterable[Forecast]", as_json: bool, several: bool = False) -> None:
    """Print forecasts, and end as the worst of the builds would."""
    from pipeline.builder import plan_page
    from pipeline.builder.forecast import would_stop

    codes, found = [], []
    for estimate in estimates:
        codes.append(DataError.exit_code if would_stop(estimate) else 0)
        output = estimate.recipe.config.run.shown
        if as_json:
            found.append((output, codes[-1], plan_page.as_json(estimate)))
        else:
            click.echo((f"build     {output}\n" if several else "") + plan_page.as_text(estimate))
    if as_json and not several:
        print_object(*found[0][1:])
    elif as_json:
        builds = [{"output": output, **with_status(code, one)} for output, code, one in found]
        print_object(max(codes), {"builds": builds})
    if max(codes):
        raise click.exceptions.Exit(max(codes))


@command("plan")
@shared.data("DATA...|RECIPE.toml")
@shared.for_task()
@shared.with_options(shared.OF_RECIPE, shared.CHANGES)
@shared.JSON
def COMMAND(
    data: tuple[str, ...], task: str | None, changes: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Format and evidence, first rows, rejects, lengths and packing."""
    looks_first = task is None and shared.recipe_in(data) is None
    if not looks_first or changes or given["model"] is None:
        configs = shared.configs_of(data, task or "", changes, given, current().trust)
        _print_each(configs, as_json)
        return
    from pipeline.builder.first_recipe import fitting, looked_at
    from pipeline.builder.forecast import of_glimpses

    files, looks = looked_at(data, given)
    config = shared.config_from(fitting(data, given, looks), data, given)
    _print([of_glimpses(config, files, looks)], as_json)


# ``pipeline init``: a first recipe for some data, with comments, that builds as it is.


MODEL = "qwen2.5-7b-instruct"


@command("init")
@shared.data(required=False)
@shared.for_task()
@option("--model", heading=under.MODEL, shell_complete=shells.models, default=MODEL)
@shared.with_options(shared.of_phase("source", but=("group_by",)))
@shared.output(LocalPath(dir_okay=False), default="recipe.toml", show_default=True)
@option("--schema", is_flag=True)
def INIT(data: tuple[str, ...], task: str | None, output: Path, schema: bool, **given: Any) -> None:
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
