"""``pipeline plan``: what a build would give, without building it."""

from __future__ import annotations

from typing import Any

import click

from pipeline import memory, tasks
from pipeline.messages.result import print_object
from pipeline.options.command_line import BUILD, config_from, with_options
from pipeline.options.config import default_cache
from stages.errors import DataError, PipelineError, UsageError


def print_plan(config: Any, as_json: bool) -> None:
    """Print the forecast of a build whose task is known."""
    from pipeline.estimate.forecast import forecast

    _print(forecast(config), as_json)


def _print(estimate: Any, as_json: bool) -> None:
    from pipeline.estimate import page
    from pipeline.estimate.forecast import would_stop

    code = DataError.exit_code if would_stop(estimate) else 0  # that the build would end with
    if as_json:
        print_object(code, page.as_json(estimate))
    else:
        click.echo(page.as_text(estimate))
    if code:
        raise click.exceptions.Exit(code)


def _nothing_fits(errors: dict[str, PipelineError]) -> PipelineError:
    """The error that helps most: one about the rows, rather than that no format fits them."""
    knowing = {t: e for t, e in errors.items() if "format fits rows" not in e.what} or errors
    if len(knowing) == 1:
        (error,) = knowing.values()
        return error
    reasons = " ".join(f"[{task}] {error}" for task, error in knowing.items())
    return type(next(iter(knowing.values())))(reasons, "Or name the task with --task.")


def _fitting(data: tuple[str, ...], given: dict[str, Any]) -> tuple[str, int, Any]:
    """The one task whose formats the sampled rows have, with what was looked at.

    Raises:
        UsageError: they have those of more than one.
        DataError: of none.
    """
    from pipeline.estimate.forecast import glimpses
    from pipeline.inputs.detection import recognise_glimpse
    from pipeline.inputs.scan import expand

    files = expand(data, given["cache_dir"] or default_cache())
    looks = glimpses(files, given["salvage"], given["empty"])
    fits: dict[str, str] = {}
    errors: dict[str, PipelineError] = {}
    for task in tasks.names():
        try:
            config = config_from(task, data, given)
            for _, file, _, glimpse in looks:
                detection = recognise_glimpse(glimpse, file.origin, config)
                fits[task] = f"{detection.reading}: {detection.evidence}"
        except (DataError, UsageError) as error:
            errors[task] = error
            fits.pop(task, None)
    if len(fits) > 1:
        ways = " or as ".join(f"{task} ({why})" for task, why in fits.items())
        flags = " or ".join(f"--task {task}" for task in fits)
        raise UsageError(f"{looks[0][1].origin} reads as {ways}.", f"Say which with {flags}.")
    if not fits:
        raise _nothing_fits(errors)
    (task,) = fits
    return task, len(files), looks


@click.command(name="plan", help="Show what would be built, from a sample; write nothing.")
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--task", type=click.Choice(tasks.names()), help="Task to train [the one that the rows fit]."
)
@with_options(BUILD)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(data: tuple[str, ...], task: str | None, as_json: bool, **given: Any) -> None:
    """Format and evidence, first rows, rejects, lengths and packing."""
    memory.without_pandas()
    if task is not None:
        print_plan(config_from(task, data, given), as_json)
        return
    from pipeline.estimate.forecast import of_glimpses

    fitting, files, looks = _fitting(data, given)
    _print(of_glimpses(config_from(fitting, data, given), files, looks), as_json)
