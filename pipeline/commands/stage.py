"""``pipeline stage``: one stage alone, Arrow in, Arrow out."""

from pathlib import Path
from typing import Any

import click

from pipeline.options.command_line import BUILD, CACHE, config_from, for_task, output, with_options
from pipeline.options.command_line import data as data_argument
from pipeline.options.help_page import DATA, argument, group
from pipeline.options.paths import FILE, LocalPath, local_cache
from stages.errors import counted


@group("stage")
def COMMAND() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{counted(refused, 'row')} refused", err=True)
    click.echo(str(output))


@COMMAND.subcommand("normalize")
@data_argument()
@for_task("", required=True)
@with_options(BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.builder.stagewise import run_until

    config = config_from(task, data, given)
    _done(run_until(config, "normalize"), config.run.output)


_IN = argument("source", type=FILE, help="The file of the stage before.", heading=DATA)
_OUT = output("Where to.", LocalPath(), required=True)


def _add(name: str, layout: bool) -> None:
    """Add the command of a stage, or of a layout."""

    def command(source: Path, output: Path, cache_dir: Path, pad_to: str | None = None) -> None:
        from pipeline.builder.stagewise import run_layout, run_stage

        run, options = (run_layout if layout else run_stage), {"pad_to": pad_to} if pad_to else {}
        _done(run(name, source, output, local_cache(cache_dir), **options), output)

    pad_to = click.option("--pad-to", metavar="WIDTH", default=None, help="Only for pad.")
    taken = (_IN, _OUT, CACHE, *([pad_to] if layout else []))
    COMMAND.subcommand(name)(with_options(taken)(command))


for _name in ("render", "mark", "encode", "accept", "validate"):
    _add(_name, layout=False)
for _name in ("pack", "pad", "ragged"):
    _add(_name, layout=True)
