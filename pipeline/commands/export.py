"""``pipeline export``: a finished build in another trainer's columns, without encoding again."""

from pathlib import Path

import click

from pipeline.options import shells
from pipeline.options.command_line import JSON, folder, output
from pipeline.options.help_page import LAYOUT, argument, command, option
from pipeline.options.paths import FOLDER, BuildPath, LocalPath
from stages.tokens import layouts


@command("export")
@argument(
    "trainer",
    help="As pipeline list trainers has it.",
    heading=LAYOUT,
    shell_complete=shells.trainers,
)
@folder("build", "DIR", "The build, or its address in a store.", BuildPath())
@output(
    "New directory, or an earlier export for the same trainer.",
    LocalPath(build=True),
    required=True,
)
@option(
    "--layout",
    heading=LAYOUT,
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


# ``pipeline overlay``: a model directory with a build's tokenizer and configuration.


@command("overlay")
@folder("model_dir", "MODEL_DIR", "A directory with a model.")
@click.option("-o", "--output", required=True, type=LocalPath(), help="Where to.")
@click.option(
    "--build", required=True, type=FOLDER, help="The build that the model will be trained on."
)
def OVERLAY(model_dir: Path, output: Path, build: Path) -> None:
    """The directory goes to stdout, what its user must know to stderr."""
    from pipeline.serving.overlay import overlay

    for note in overlay(model_dir, build, output):
        click.echo(note, err=True)
    click.echo(str(output))
