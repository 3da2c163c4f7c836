"""``pipeline show``: the tokens of stored rows, coloured by what they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from pipeline.options import headings as under
from pipeline.options.command_line import folder
from pipeline.options.help_page import Command, Option
from pipeline.options.local_path import BuildPath

_which = partial(click.option, cls=Option, heading=under.ROWS)
_drawn = partial(click.option, cls=Option, heading=under.DRAWN)


@click.command(
    name="show",
    cls=Command,
    help="Show rows of a build, decoded from its shards.",
    heading=under.LOOK,
    examples=(
        ("pipeline show build", "The first stored row"),
        ("pipeline show build --row data.jsonl:3", "The row of line 3"),
        ("pipeline show build --where 'trained < 5'", "The first example that trains little"),
    ),
)
@folder("folder", "DIR", "The build, or its address in a store.", BuildPath())
@_which("--row", metavar="ID", help="Show the example with this row_id.")
@_which("--pack", type=click.IntRange(0), metavar="N", help="Show stored row N, from 0.")
@_which("--random", type=click.IntRange(1), metavar="N", help="Show N rows at random.")
@_which("--seed", type=int, help="For --random.")
@_which(
    "--where",
    metavar="CONDITION",
    help="Show the first example for which this is true: 'trained = 0', 'tokens > 2000 and turns "
    "< 4'. The language is that of --filter.",
)
@_which("--after", metavar="ID", help="Search from behind this row_id.")
@_which("--before", metavar="ID", help="Search backwards from this row_id.")
@_which("--limit", type=click.IntRange(1), metavar="N", help="Show N examples (1).")
@_which("--count", is_flag=True, help="With --where: only say how many examples it is true for.")
@_which("--fields", is_flag=True, help="List what --where can read of this build's examples.")
@_which("--split", help="train or test; by default train, and both for searches.")
@_drawn("--boundaries", is_flag=True, help="Draw a line behind every token.")
@_drawn("--ids", is_flag=True, help="Write the id of every token behind it.")
@_drawn(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto: on a terminal, unless NO_COLOR is set.",
)
def COMMAND(folder: Path, color: str, split: str | None, **asked: Any) -> None:
    """Without a choice, the first stored row."""
    _require_one_way(asked)
    from pipeline.builds.build import Build
    from pipeline.report.drawing import Shards
    from pipeline.report.pages import Pages, Shown
    from pipeline.report.terminal import Marks

    build = Build.open(folder)
    named = build.shown() if build.address else str(folder)
    marks = Marks(boundaries=asked["boundaries"], ids=asked["ids"])
    pages = Pages(Shards(build), Shown(named, marks, color, split))
    where, after, before = asked["where"], asked["after"], asked["before"]
    if asked["fields"]:
        pages.fields()
    elif asked["count"]:
        pages.count(where)
    elif asked["row"] is not None:
        pages.example(asked["row"])
    elif asked["random"] is not None:
        pages.some(asked["random"], asked["seed"])
    elif where is not None or after is not None or before is not None:
        begin = after if before is None else before
        pages.found(where, begin, asked["limit"] or 1, backwards=before is not None)
    else:
        pages.row(asked["pack"] or 0)


def _require_one_way(asked: Mapping[str, Any]) -> None:
    """Options that choose what is shown exclude each other, but those of one search.

    Raises:
        UsageError: two of them are given, or one without what it belongs to.
    """
    from stages.errors import UsageError

    given = [
        f"--{name}"
        for name in ("fields", "row", "pack", "random")
        if asked[name] is not None and asked[name] is not False
    ]
    search = [f"--{name}" for name in ("where", "after", "before") if asked[name] is not None]
    if len(given) + bool(search) > 1 or {"--after", "--before"} <= {*search}:
        both = [*given, *search]
        raise UsageError(f"{' and '.join(both)} exclude each other.", "Give one of them.")
    if asked["count"] and search != ["--where"]:
        raise UsageError("--count counts what --where finds.", "Give --where, and no --after.")
    if asked["limit"] is not None and not search:
        raise UsageError("--limit is for searches.", "Give --where, --after or --before.")
