"""``pipeline export``: a finished build in another trainer's columns, without encoding again."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.options import completion
from pipeline.options import headings as under
from pipeline.options.command_line import JSON, folder, output
from pipeline.options.help_page import Command, argument, option
from pipeline.options.local_path import BuildPath, LocalPath
from stages.tokens import layouts


@click.command(
    name="export",
    cls=Command,
    help="Write a finished build in another trainer's columns and layout.",
    heading=under.BUILDS,
    examples=(
        ("pipeline export trl build -o for-trl", "For TRL, in the layout of the build"),
        ("pipeline export trl build -o ragged --layout ragged", "One example a row"),
        ("pipeline export axolotl build -o for-axolotl --json", "With its manifest on stdout"),
    ),
)
@argument(
    "trainer",
    help="As pipeline list trainers has it.",
    heading=under.LAYOUT,
    shell_complete=completion.trainers,
)
@folder("build", "DIR", "The build, or its address in a store.", BuildPath())
@output(
    "New directory, or an earlier export for the same trainer.",
    LocalPath(build=True),
    required=True,
)
@option(
    "--layout",
    heading=under.LAYOUT,
    type=click.Choice(layouts.names()),
    help="How rows are stored [as in the build, if the trainer takes it].",
)
@JSON
def COMMAND(trainer: str, build: Path, output: Path, layout: str | None, as_json: bool) -> None:
    """The manifest's path goes to stdout, the command that trains to stderr."""
    from pipeline.builder import launch
    from pipeline.builder.exporting import export_build
    from pipeline.messages import result
    from pipeline.messages.session import current

    built = export_build(trainer, build, output, layout or "")
    click.echo(f"train     {launch.start_command(output, trainer)}", err=True)
    session = current()
    session.in_json |= as_json
    session.end(result.of_built(built))
