"""``pipeline overlaps``: which rows a build left out for being like others, with both texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.options import headings as under
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import Command
from stages.counted import counted

if TYPE_CHECKING:
    from pipeline.manifest.manifest import Manifest
    from pipeline.manifest.overlap_records import Hit, NearDuplicate


def _print_hit(hit: Hit) -> None:
    how = "contained" if hit.contained else f"{hit.share:.0%} of its words"
    click.echo(f"{hit.id}  {hit.evaluation}, line {hit.line} of {hit.file}: {how}")
    _print_texts(("row", hit.said), ("question", hit.question), ("shared", hit.match))


def _print_near(one: NearDuplicate) -> None:
    click.echo(f"{one.id}  is {one.likeness:.2f} like {one.kept}, which stays")
    _print_texts(("row", one.said), ("stays", one.kept_said))


def _print_texts(*texts: tuple[str, str]) -> None:
    for name, text in texts:
        if text:
            click.echo(f"    {name:<9} {' '.join(text.split())}")
    click.echo()


@click.command(
    name="overlaps",
    cls=Command,
    heading=under.LOOK,
    examples=(
        ("pipeline overlaps build", "The first twenty of each kind"),
        ("pipeline overlaps build --limit 0", "All of them"),
        ("pipeline overlaps build --json", "For a program"),
    ),
    help="Show the rows that a build left out for being like others, with both texts: those that "
    "ask what an evaluation file asks, and near-duplicates.",
)
@folder("folder", "DIR", "The build.")
@click.option("--evaluation", metavar="NAME", help="Only those of one evaluation.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="How many are shown; 0 for all.",
)
@JSON
def COMMAND(folder: Path, evaluation: str | None, limit: int, as_json: bool) -> None:
    """In input order."""
    from pipeline.builds.build import Build
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
    hits = list(islice(found, limit or None))
    alike = list(islice(build.near_duplicates(), limit or None)) if evaluation is None else []
    if as_json:
        said = {"decontamination": record, "near_duplicates": build.manifest.near_duplicates}
        counts: dict[str, Any] = {key: one and plain(one) for key, one in said.items()}
        listed = {"contaminated": list(map(plain, hits)), "alike": list(map(plain, alike))}
        click.echo(json.dumps(counts | listed))
        return
    for hit in hits:
        _print_hit(hit)
    for one in alike:
        _print_near(one)
    for line in _counted(build.manifest, evaluation):
        click.echo(line)


def _counted(manifest: Manifest, evaluation: str | None) -> Iterator[str]:
    """How many there are of each."""
    record, alike = manifest.decontamination, manifest.near_duplicates
    for one in record.evaluations if record else ():
        if evaluation in (None, one.name):
            asked = f"{one.found:,} of {counted(one.questions, 'question')}"
            yield f"{one.name}: {counted(one.rows, 'row')} left out for {asked}"
    if alike and evaluation is None:
        yield f"{counted(alike.rows, 'row')} left out for {alike.clusters:,} like them"
    if record is None and alike is None:
        yield "built without --decontaminate and without --near-dedup"
