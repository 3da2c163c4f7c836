"""``pipeline export``: a finished build in another trainer's columns, without encoding again."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.options.local_path import BuildPath, LocalPath
from stages import layouts


@click.command(
    name="export", help="Write a finished build in another trainer's columns and layout."
)
@click.argument("trainer")
@click.argument("build", type=BuildPath())
@click.option("-o", "--output", required=True, type=LocalPath(build=True), help="New directory.")
@click.option(
    "--layout",
    type=click.Choice(layouts.names()),
    help="How rows are stored [as in the build, if the trainer takes it].",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: status, message, figures, paths, manifest.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(trainer: str, build: Path, output: Path, layout: str | None, as_json: bool) -> None:
    """The manifest's path goes to stdout, the command that trains to stderr."""
    from pipeline.build_dir.build import Build
    from pipeline.build_dir.built import Built
    from pipeline.messages import result
    from pipeline.messages.session import current
    from pipeline.trainers import launch
    from pipeline.trainers.exporting import export_build

    path = export_build(trainer, build, output, layout or "")
    click.echo(f"train     {launch.command(output, trainer)}", err=True)
    session = current()
    session.in_json |= as_json
    if not session.in_json:
        click.echo(str(path))
    session.end(result.of_built(Built(Build.open(output), fresh=True)))
