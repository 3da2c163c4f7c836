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
from pipeline.options.help_page import Argument, Choice, Group, Option
from pipeline.options.local_path import LocalPath
from pipeline.options.output import local_cache
from stages.counted import counted

_NORMALIZE = "pipeline stage normalize data.jsonl --task sft --model qwen2-1.5b -o rows.arrow"
_BEFORE = {  # task, data, and the stage that writes what each stage reads
    "render": ("sft", "data.jsonl", "normalize"),
    "mark": ("prm", "steps.jsonl", "render"),
    "encode": ("sft", "data.jsonl", "render"),
    "accept": ("sft", "ids.jsonl", "normalize"),
    "validate": ("sft", "data.jsonl", "encode"),
}


def _examples(name: str) -> tuple[tuple[str, str], ...]:
    task, data, before = _BEFORE.get(name, ("sft", "data.jsonl", "validate"))
    more = " --format pretokenized" if name == "accept" else ""
    made = f"pipeline run {task} {data} --model qwen2-1.5b --until {before} -o in.arrow{more}"
    return (
        (made, f"The file that it reads comes from {before}"),
        (f"pipeline stage {name} in.arrow -o {name}.arrow", "This stage alone"),
        (f"pipeline stage {name} in.arrow -o {name}.arrows", "To a folder of its own"),
    )


@click.group(
    name="stage",
    cls=Group,
    help="Run one stage alone: Arrow in, Arrow out.",
    heading=under.MORE,
    examples=(
        (_NORMALIZE, "Rows to columns"),
        ("pipeline stage render rows.arrow -o text.arrow", "Columns to text"),
        ("pipeline stage encode text.arrow -o ids.arrow", "Text to ids and labels"),
    ),
)
def COMMAND() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{counted(refused, 'row')} refused", err=True)
    click.echo(str(output))


@COMMAND.command(
    help="Raw rows to columns; the only stage that takes the build's options.",
    examples=(
        (_NORMALIZE, "Conversations"),
        (f"{_NORMALIZE} --map question=question", "With a column named by hand"),
        (f"{_NORMALIZE} --max-length 512", "With any other option of builds"),
    ),
)
@data_argument()
@click.option(
    "--task", cls=Option, heading=under.TRAINED, type=Choice(tasks.names()), required=True
)
@with_options(BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.builder.stagewise import run_until

    config = config_from(task, data, given)
    _done(run_until(config, "normalize"), config.run.output)


_IN = click.argument(
    "source",
    cls=Argument,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of the stage before.",
    heading=under.DATA,
)
_OUT = click.option(
    "-o",
    "--output",
    cls=Option,
    heading=under.OUTPUT,
    type=LocalPath(),
    required=True,
    help="Where to.",
)


def _add_stage(name: str, text: str) -> None:
    @COMMAND.command(name=name, help=text, examples=_examples(name))
    @_IN
    @_OUT
    @CACHE
    def command(source: Path, output: Path, cache_dir: Path | None) -> None:
        from pipeline.builder.stagewise import run_stage

        _done(run_stage(name, source, output, local_cache(cache_dir or default_cache())), output)


def _add_layout(name: str, text: str) -> None:
    @COMMAND.command(name=name, help=text, examples=_examples(name))
    @_IN
    @_OUT
    @CACHE
    @click.option("--pad-to", metavar="WIDTH", default=None, help="Only for pad.")
    def command(source: Path, output: Path, cache_dir: Path | None, pad_to: str | None) -> None:
        from pipeline.builder.stagewise import run_layout

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
