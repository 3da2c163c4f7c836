"""``pipeline diff``: what changed from one build to another."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.options import headings as under
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import Command

_BUILD = click.Path(path_type=Path)


@click.command(
    name="diff",
    cls=Command,
    help="Compare two builds: examples, splits, sources, lengths, options, audits.",
    heading=under.BUILDS,
    examples=(
        ("pipeline diff build other", "What the other one has more, or less, or otherwise"),
        ("pipeline diff build other --page diff.html", "Also as a page"),
        ("pipeline diff build other --json", "For a program"),
    ),
)
@folder("one", "A", "A build, or RELEASES/ID with the first characters of an id.", _BUILD)
@folder("other", "B", "The other one.", _BUILD)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page there."
)
@JSON
def COMMAND(one: Path, other: Path, page: Path | None, as_json: bool) -> None:
    """A and B are folders of builds; RELEASES/ID also with the first characters of an id."""
    from pipeline.report import difference, words

    found = difference.difference(difference.opened(one), difference.opened(other))
    if page is not None:
        from pipeline.report.diff_page import render

        page.write_text(render(found), "utf-8")
    if as_json:
        print_object(0, found)
    else:
        click.echo(lines.fit("\n".join(words.lines(found))))
