"""``pipeline build``: the builds that a TOML recipe describes, for scheduled runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.options.command_line import CHANGES, OUTPUT, SET, given_flags, with_options
from stages.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.options.config import Config


@click.command(name="build", help="Build what a TOML recipe describes; options given here win.")
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_options((SET,), OUTPUT, CHANGES)
def COMMAND(
    recipe: Path, changes: tuple[str, ...], as_json: bool, quiet: bool, **given: Any
) -> None:
    """Paths in the recipe count from its folder, those given here from where the command runs."""
    from pipeline.options.recipe import builds_of
    from pipeline.recipe.checked_before import checked
    from pipeline.run_build import build_and_report

    configs = builds_of(recipe, changes, given_flags(given), checked)
    if len(configs) == 1:
        build_and_report(configs[0], as_json, quiet)
    else:
        _each(configs, as_json, quiet)


def _each(configs: Sequence[Config], as_json: bool, quiet: bool) -> None:
    """Build one after the other; one that fails keeps none of the others back.

    Parts lie in the cache by what they depend on, so builds that differ in their shards alone
    encode the rows once. Ends with the status of the first build that failed.
    """
    from pipeline.run_build import build_and_report

    status = 0
    for config in configs:
        if not quiet:
            click.echo(f"build     {config.run.output}", err=True)
        try:
            build_and_report(config, as_json, quiet)
        except PipelineError as error:
            status = status or error.exit_code
            remedy = f"\n       {error.remedy}" if error.remedy else ""
            click.echo(f"error: {config.run.output}: {error.what}{remedy}", err=True)
    if status:
        raise click.exceptions.Exit(status)
