"""``pipeline check``: a finished build looked at again, file by file and row by row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.options import headings as under
from pipeline.options.command_line import CACHE, JSON, folder
from pipeline.options.help_page import Command
from pipeline.options.output import local_cache
from stages.counted import counted

if TYPE_CHECKING:
    from pipeline.publish.checked import Checked

SHOWN = 20
REFUSED = 3


@click.command(
    name="check",
    cls=Command,
    help="Check a finished build again: files, numbers, tokens, rows.",
    heading=under.BUILDS,
    examples=(
        ("pipeline check build", "Every file, every number, a sample of rows built again"),
        ("pipeline check build --json", "The same for a program"),
        ("pipeline check build && echo ok", "In a script: the exit status is 3 for a fault"),
    ),
)
@folder("folder", "DIR", "The build.", click.Path(path_type=Path))
@CACHE
@JSON
def COMMAND(folder: Path, cache_dir: Path, as_json: bool) -> None:
    """Exit status 0 without faults, 3 otherwise."""
    from pipeline.publish.check import check
    from pipeline.stores import shown

    result = check(folder, local_cache(cache_dir))
    columns = lines.width(sys.stderr)
    for note in result.notes:
        click.echo(lines.fit(f"note: {note}", columns), err=True)
    for fault in result.faults[:SHOWN]:
        problem = f"problem: {fault.where}: {fault.code}: {fault.detail}"
        click.echo(lines.fit(problem, columns), err=True)
    if len(result.faults) > SHOWN:
        click.echo(f"       and {len(result.faults) - SHOWN} more (see --json)", err=True)
    if result.faults:
        codes = dict.fromkeys(fault.code for fault in result.faults)
        click.echo(f"What it means: pipeline explain {next(iter(codes))}", err=True)
    if as_json:
        print_object(REFUSED if result.faults else 0, result.described())
    elif not result.faults:
        click.echo(lines.fit(f"{shown(folder)}: {'; '.join(_held(result))}"))
    if result.faults:
        raise click.exceptions.Exit(REFUSED)


def _held(result: Checked) -> Iterator[str]:
    """What was found to hold, of all that the build was judged by."""
    judged = result.verdict.summary()["judged"] if result.verdict else 0
    yield f"{judged} of {counted(result.expectations, 'expectation')} hold"
    left = result.expectations - judged
    if left > 0:
        yield f"{left} judged only while a build is made"
    if result.rows_made_again:
        yield (
            f"{counted(result.rows_made_again, 'example')} rebuilt from the source, equal "
            "to what is stored"
        )
