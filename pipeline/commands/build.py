"""``pipeline build``: the builds that a TOML recipe describes, for scheduled runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.options.command_line import CHANGES, OUTPUT, given_flags, with_options

SET = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe: max-length=2048, map.prompt=question, source.math.system=...",
)


@click.command(name="build", help="Build what a TOML recipe describes; options given here win.")
@click.argument("recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_options((SET,), OUTPUT, CHANGES)
def COMMAND(
    recipe: Path, changes: tuple[str, ...], as_json: bool, quiet: bool, **given: Any
) -> None:
    """Paths in the recipe count from its folder, those given here from where the command runs."""
    from pipeline.options.recipe import builds_of
    from pipeline.run_build import build_and_report

    for config in builds_of(recipe, changes, given_flags(given)):
        build_and_report(config, as_json, quiet)
