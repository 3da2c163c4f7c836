"""``pipeline build``: the builds that a TOML recipe describes, for scheduled runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.messages.session import current
from pipeline.options import completion
from pipeline.options import headings as under
from pipeline.options.command_line import CHANGES, OF_RECIPE, OUTPUT, given_flags, with_options
from pipeline.options.help_page import Command, argument
from stages.errors import UsageError


@click.command(
    name="build",
    cls=Command,
    help="Build what a TOML recipe describes; options given here win.",
    heading=under.BUILDS,
    examples=(
        ("pipeline build recipe.toml", "Every build of the recipe"),
        ("pipeline build recipe.toml --max-length 2048 -o build", "With other options"),
        ("pipeline build recipe.toml --set map.question=question", "With another key"),
    ),
)
@argument(
    "recipe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML recipe, as pipeline init writes one.",
    shell_complete=completion.files(".toml"),
    heading=under.DATA,
)
@with_options(OF_RECIPE, OUTPUT, CHANGES)
def COMMAND(
    recipe: Path, changes: tuple[str, ...], as_json: bool, quiet: bool, **given: Any
) -> None:
    """Paths in the recipe count from its folder, those given here from where the command runs."""
    from pipeline.inputs.kept_answers import checked_recipe
    from pipeline.options.recipe import builds_of, notified_by
    from pipeline.run_build import build_each

    session = current()
    try:
        configs = builds_of(recipe, changes, given_flags(given), checked_recipe, session.trust)
    except UsageError:
        if session.trust:  # who is to be notified may be readable all the same
            session.notify = session.notify or notified_by(recipe)
        raise
    build_each(configs, as_json, quiet)
