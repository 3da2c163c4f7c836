"""``pipeline stage``: one stage alone, Arrow in, Arrow out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline import tasks
from pipeline.options import headings as under
from pipeline.options.command_line import BUILD, CACHE, config_from, with_options
from pipeline.options.command_line import data as data_argument
from pipeline.options.config import default_cache
from pipeline.options.help_page import Group, Option
from pipeline.options.local_path import LocalPath
from pipeline.options.output import local_cache

_EXAMPLES = {
    "normalize": (
        "pipeline stage normalize data.jsonl --task sft --model qwen2-1.5b -o rows.arrow"
    ),
    "render": "pipeline stage render rows.arrow -o rendered.arrow",
    "mark": "pipeline stage mark rendered-steps.arrow -o marked.arrow",
    "encode": "pipeline stage encode rendered.arrow -o encoded.arrow",
    "accept": "pipeline stage accept ids.arrow -o accepted.arrow",
    "validate": "pipeline stage validate encoded.arrow -o valid.arrow",
    "pack": "pipeline stage pack valid.arrow -o packed.arrow",
    "pad": "pipeline stage pad valid.arrow -o padded.arrow",
    "ragged": "pipeline stage ragged valid.arrow -o ragged.arrow",
}


@click.group(
    name="stage",
    cls=Group,
    help="Run one stage alone: Arrow in, Arrow out.",
    heading=under.MORE,
    examples=[
        (_EXAMPLES["normalize"], "Rows to columns"),
        (_EXAMPLES["render"], "Columns to text"),
        (_EXAMPLES["encode"], "Text to ids and labels"),
    ],
)
def COMMAND() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{refused} rows refused", err=True)
    click.echo(str(output))


@COMMAND.command(help="Raw rows to columns; the only stage that takes the build's options.")
@data_argument()
@click.option(
    "--task", cls=Option, heading=under.TRAINED, type=click.Choice(tasks.names()), required=True
)
@with_options(BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.stagewise.stagewise import run_until

    config = config_from(task, data, given)
    _done(run_until(config, "normalize"), config.run.output)


_IN = click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_OUT = click.option("-o", "--output", type=LocalPath(), required=True)


def _add_stage(name: str, text: str) -> None:
    @COMMAND.command(name=name, help=text)
    @_IN
    @_OUT
    @CACHE
    def command(source: Path, output: Path, cache_dir: Path | None) -> None:
        from pipeline.stagewise.stagewise import run_stage

        _done(run_stage(name, source, output, local_cache(cache_dir or default_cache())), output)


def _add_layout(name: str, text: str) -> None:
    @COMMAND.command(name=name, help=text)
    @_IN
    @_OUT
    @CACHE
    @click.option("--pad-to", metavar="WIDTH", default=None, help="Only for pad.")
    def command(source: Path, output: Path, cache_dir: Path | None, pad_to: str | None) -> None:
        from pipeline.stagewise.stagewise import run_layout

        options = {"pad_to": pad_to} if pad_to else {}
        _done(
            run_layout(name, source, output, local_cache(cache_dir or default_cache()), **options),
            output,
        )


for _name, _text in (
    ("render", "Columns to segments of text, by the chat template."),
    ("mark", "PRM: put the step token after every step."),
    ("encode", "Segments to ids and labels."),
    ("accept", "Token ids: check them as they are, instead of render and encode."),
    ("validate", "Refuse rows that break an invariant."),
):
    _add_stage(_name, _text)

for _name, _text in (
    ("pack", "Encoded examples to packed shards."),
    ("pad", "Encoded examples to padded shards."),
    ("ragged", "Encoded examples to ragged shards."),
):
    _add_layout(_name, _text)
