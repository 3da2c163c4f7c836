"""``pipeline overlaps``: which rows a build left out for being like others, with both texts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pipeline.manifest.overlap_records import Hit


def _print_hit(hit: Hit) -> None:
    how = "contained" if hit.contained else f"{hit.share:.0%} of its words"
    click.echo(f"{hit.id}  {hit.evaluation}, line {hit.line} of {hit.file}: {how}")
    _print_texts(("row", hit.said), ("question", hit.question), ("shared", hit.match))


def _print_texts(*texts: tuple[str, str]) -> None:
    for name, text in texts:
        if text:
            click.echo(f"    {name:<9} {' '.join(text.split())}")
    click.echo()


@click.command(
    name="overlaps",
    help="Show the rows that a build left out for questions of evaluation files, with both texts.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--evaluation", metavar="NAME", help="Only those of one evaluation.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many are shown; 0 for all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print them as one JSON object.")
def COMMAND(folder: Path, evaluation: str | None, limit: int, as_json: bool) -> None:
    """In input order."""
    from pipeline.build_dir.build import Build
    from pipeline.manifest.json_records import as_json as plain
    from stages.errors import UsageError

    build = Build.open(folder)
    record = build.manifest.decontamination
    names = [one.name for one in record.evaluations] if record else []
    if evaluation is not None and evaluation not in names:
        raise UsageError(
            f"{folder} was not compared with an evaluation called {evaluation}.",
            f"It was compared with: {', '.join(names) or 'none'}.",
        )
    found: Iterable[Hit] = (
        hit for hit in build.contaminated() if evaluation in (None, hit.evaluation)
    )
    shown = list(islice(found, limit or None))
    if as_json:
        counted = plain(record) if record else None
        hits = [plain(hit) for hit in shown]
        click.echo(json.dumps({"decontamination": counted, "contaminated": hits}))
        return
    for hit in shown:
        _print_hit(hit)
    for one in record.evaluations if record else ():
        if evaluation in (None, one.name):
            click.echo(
                f"{one.name}: {one.rows} rows left out for {one.found} of {one.questions} questions"
            )
    if record is None:
        click.echo(f"{folder} was built without --decontaminate")
