"""``pipeline export``, ``overlay``, ``publish``: a build for a trainer, a server, others."""

import json
from pathlib import Path

import click

from pipeline.messages.session import current, following
from pipeline.options import shells
from pipeline.options.command_line import CACHE, JSON, folder, output
from pipeline.options.help_page import LAYOUT, OUTPUT, argument, command, option
from pipeline.options.paths import FILE, FOLDER, BuildPath, LocalPath, local_cache, read_text
from stages.errors import counted
from stages.tokens import layouts


@command("export")
@argument("trainer", heading=LAYOUT, shell_complete=shells.trainers)
@folder("build", "DIR", "The build, or its address in a store.", BuildPath())
@output(LocalPath(build=True), required=True)
@option("--layout", heading=LAYOUT, type=click.Choice(layouts.names()))
@JSON
def COMMAND(trainer: str, build: Path, output: Path, layout: str | None, as_json: bool) -> None:
    """The manifest's path goes to stdout, the command that trains to stderr."""
    from pipeline.builder import launch
    from pipeline.builder.exporting import export_build
    from pipeline.messages import result

    built = export_build(trainer, build, output, layout or "")
    click.echo(f"train     {launch.start_command(output, trainer)}", err=True)
    session = current()
    session.begin(as_json)
    session.end(result.of_built(built))


# ``pipeline overlay``: a model directory with a build's tokenizer and configuration.


@command("overlay")
@folder("model_dir", "MODEL_DIR", "A directory with a model.")
@click.option("-o", "--output", required=True, type=LocalPath())
@click.option("--build", required=True, type=FOLDER)
def OVERLAY(model_dir: Path, output: Path, build: Path) -> None:
    """The directory goes to stdout, what its user must know to stderr."""
    from pipeline.serving.overlay import overlay

    for note in overlay(model_dir, build, output):
        click.echo(note, err=True)
    click.echo(str(output))


# ``pipeline publish``: a checked build to the hub, to a store or to a folder.


@command("publish")
@folder("build", "DIR", "The build.")
@argument("address", heading=OUTPUT)
@click.option("--title", default="")
@click.option("--license", "licence", default="", metavar="ID")
@click.option("--origin", "origins", multiple=True, metavar="TEXT")
@click.option("--recipe", type=FILE)
@click.option("--with-rejects", is_flag=True)
@click.option("--public", is_flag=True)
@click.option("--verify", is_flag=True)
@CACHE
@JSON
@click.option("--quiet", is_flag=True)
def PUBLISH(
    build: Path,
    address: str,
    title: str,
    licence: str,
    origins: tuple[str, ...],
    recipe: Path | None,
    with_rejects: bool,
    public: bool,
    verify: bool,
    cache_dir: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """The address goes to stdout, what was sent to stderr."""
    from pipeline.publish.upload import publish
    from pipeline.report.card import Publisher

    text = read_text(recipe) if recipe else ""
    with following(current(), quiet) as report:
        done = publish(
            build,
            address,
            Publisher(title=title, license=licence, origins=origins, recipe=text),
            cache_dir=local_cache(cache_dir),
            report=report,
            with_rejects=with_rejects,
            private=not public,
            verify=verify,
        )
    if not quiet:
        sent = (
            f"{len(done.sent.names):,} of {counted(done.files, 'file')} sent, "
            f"{counted(done.sent.bytes, 'byte')}"
        )
        removed = f", {len(done.sent.removed)} removed" if done.sent.removed else ""
        click.echo(f"{done.status}: {sent}{removed}", err=True)
    click.echo(json.dumps(done.described(), ensure_ascii=False) if as_json else done.address)
