"""``pipeline overlay``: a model directory with a build's tokenizer and configuration."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.options import headings as under
from pipeline.options.command_line import folder
from pipeline.options.help_page import Command
from pipeline.options.local_path import LocalPath


@click.command(
    name="overlay",
    cls=Command,
    heading=under.SHARE,
    examples=(
        ("pipeline overlay model -o ready --build build", "The model that a trainer starts from"),
        ("pipeline overlay ./model -o second --build build --debug", "With tracebacks of errors"),
        ("MODEL=$(pipeline overlay model -o third --build build)", "In a script"),
    ),
    help="Write a model directory with a build's tokenizer and configuration; weights are linked.",
)
@folder("model_dir", "MODEL_DIR", "A directory with a model.")
@click.option("-o", "--output", required=True, type=LocalPath(), help="Where to.")
@click.option(
    "--build",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The build that the model will be trained on.",
)
def COMMAND(model_dir: Path, output: Path, build: Path) -> None:
    """The directory goes to stdout, what its user must know to stderr."""
    from pipeline.serving.overlay import overlay

    for note in overlay(model_dir, build, output):
        click.echo(note, err=True)
    click.echo(str(output))
