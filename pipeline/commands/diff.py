"""``pipeline diff``: what changed from one build to another."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.messages.result import print_object

_BUILD = click.Path(path_type=Path)


@click.command(
    name="diff", help="Compare two builds: examples, splits, sources, lengths, options, audits."
)
@click.argument("one", metavar="A", type=_BUILD)
@click.argument("other", metavar="B", type=_BUILD)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page there."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def COMMAND(one: Path, other: Path, page: Path | None, as_json: bool) -> None:
    """A and B are folders of builds; RELEASES/ID also with the first characters of an id."""
    from pipeline.diff import difference, words

    found = difference.difference(difference.opened(one), difference.opened(other))
    if page is not None:
        from pipeline.diff.page import render

        page.write_text(render(found), "utf-8")
    if as_json:
        print_object(0, found)
    else:
        click.echo("\n".join(words.lines(found)))
