"""``pipeline stage``: one stage alone, Arrow in, Arrow out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.options import help_page as under
from pipeline.options.command_line import BUILD, CACHE, config_from, for_task, output, with_options
from pipeline.options.command_line import data as data_argument
from pipeline.options.help_page import Group, argument, command
from pipeline.options.paths import LocalPath, local_cache
from stages.errors import counted

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


@command(
    "stage",
    "Run one stage alone: Arrow in, Arrow out.",
    under.MORE,
    (_NORMALIZE, "Rows to columns"),
    ("pipeline stage render rows.arrow -o text.arrow", "Columns to text"),
    ("pipeline stage encode text.arrow -o ids.arrow", "Text to ids and labels"),
    cls=Group,
)
def COMMAND() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{counted(refused, 'row')} refused", err=True)
    click.echo(str(output))


@COMMAND.subcommand(
    "normalize",
    "Raw rows to columns; the only stage that takes the build's options.",
    (_NORMALIZE, "Conversations"),
    (f"{_NORMALIZE} --map question=question", "With a column named by hand"),
    (f"{_NORMALIZE} --max-length 512", "With any other option of builds"),
)
@data_argument()
@for_task("", required=True)
@with_options(BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.builder.stagewise import run_until

    config = config_from(task, data, given)
    _done(run_until(config, "normalize"), config.run.output)


_IN = argument(
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of the stage before.",
    heading=under.DATA,
)
_OUT = output("Where to.", LocalPath(), required=True)


def _add(name: str, text: str, layout: bool) -> None:
    """Add the command of a stage, or of a layout."""

    def command(source: Path, output: Path, cache_dir: Path, pad_to: str | None = None) -> None:
        from pipeline.builder.stagewise import run_layout, run_stage

        run, options = (run_layout if layout else run_stage), {"pad_to": pad_to} if pad_to else {}
        _done(run(name, source, output, local_cache(cache_dir), **options), output)

    pad_to = click.option("--pad-to", metavar="WIDTH", default=None, help="Only for pad.")
    taken = (_IN, _OUT, CACHE, *([pad_to] if layout else []))
    COMMAND.command(name=name, help=text, examples=_examples(name))(with_options(taken)(command))


for _name, _text, _layout in (
    ("render", "Columns to segments of text, by the chat template.", False),
    ("mark", "PRM: put the step token after every step.", False),
    ("encode", "Segments to ids and labels.", False),
    ("accept", "Token ids: check them as they are, instead of render and encode.", False),
    ("validate", "Refuse rows that break an invariant.", False),
    ("pack", "Encoded examples to packed shards.", True),
    ("pad", "Encoded examples to padded shards.", True),
    ("ragged", "Encoded examples to ragged shards.", True),
):
    _add(_name, _text, _layout)
