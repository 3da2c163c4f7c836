"""``pipeline show``: the tokens of stored rows, coloured by what they are."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.options import headings as under
from pipeline.options.command_line import folder
from pipeline.options.help_page import Command
from pipeline.options.local_path import BuildPath


@click.command(
    name="show",
    cls=Command,
    help="Show rows of a build, decoded from its shards.",
    heading=under.LOOK,
    examples=(
        ("pipeline show build", "The first stored row"),
        ("pipeline show build --row data.jsonl:3", "The row of line 3"),
        ("pipeline show build --random 2 --seed 7", "Two rows at random"),
    ),
)
@folder("folder", "DIR", "The build, or its address in a store.", BuildPath())
@click.option("--row", metavar="ID", help="Show the example with this row_id.")
@click.option("--pack", type=click.IntRange(0), metavar="N", help="Show stored row N, from 0.")
@click.option(
    "--random", "count", type=click.IntRange(1), metavar="N", help="Show N rows at random."
)
@click.option("--seed", type=int, help="For --random.")
@click.option("--split", default="train", show_default=True, help="train or test.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto: on a terminal, unless NO_COLOR is set.",
)
def COMMAND(
    folder: Path,
    row: str | None,
    pack: int | None,
    count: int | None,
    seed: int | None,
    split: str,
    color: str,
) -> None:
    """Without a choice, the first stored row."""
    from pipeline.build_dir.build import Build
    from pipeline.view.drawing import Shards
    from pipeline.view.terminal import Canvas
    from stages.errors import UsageError

    if sum(given is not None for given in (row, pack, count)) > 1:
        raise UsageError("--row, --pack and --random exclude each other.", "Give one of them.")
    shards = Shards(Build.open(folder))
    canvas = Canvas(color)
    if row is not None:
        canvas.example(shards, row)
        return
    numbers = [pack or 0]
    if count is not None:
        side = shards.build.splits.get(split)
        numbers = _some(side.record.rows if side else 1, count, seed)
    for number in numbers:
        canvas.stored(shards, split, number)


def _some(rows: int, count: int, seed: int | None) -> list[int]:
    import random

    return sorted(random.Random(seed).sample(range(rows), min(count, rows)))
