"""``pipeline overlay``: a model directory with a build's tokenizer and configuration."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.options.local_path import LocalPath


@click.command(
    name="overlay",
    help="Write a model directory with a build's tokenizer and configuration; weights are linked.",
)
@click.argument("model_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=LocalPath(), help="Where to.")
@click.option(
    "--build",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The build that the model will be trained on.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(model_dir: Path, output: Path, build: Path) -> None:
    """The directory goes to stdout, what its user must know to stderr."""
    from pipeline.overlay.overlay import overlay

    for note in overlay(model_dir, build, output):
        click.echo(note, err=True)
    click.echo(str(output))
