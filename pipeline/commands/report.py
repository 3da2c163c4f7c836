"""``pipeline report``: the page of a finished build, made again from its files."""

import hashlib
from pathlib import Path

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import command
from pipeline.options.paths import BuildPath, LocalPath


@command("report")
@folder("folder", "DIR", "The build, or its address in a store.", BuildPath())
@click.option(
    "-o",
    "--output",
    type=LocalPath(dir_okay=False),
    help="Write the page here, with what changed against the build that it replaced.",
)
@click.option(
    "--against",
    type=BuildPath(),
    metavar="OTHER",
    help="With -o: what changed against this build instead.",
)
def COMMAND(folder: Path, output: Path | None, against: Path | None) -> None:
    """Inside the build only the very page that its manifest names is written."""
    from pipeline.manifest.records import REPORT
    from pipeline.report.page import remake, with_changes
    from pipeline.stores import is_address, shown
    from stages.errors import UsageError

    if output is not None:
        output.write_bytes(with_changes(folder, against))
        click.echo(str(output))
        return
    if against is not None:
        raise UsageError(
            "The page in a build says nothing of other builds: equal builds have equal pages.",
            "Name a file for the page with -o FILE.",
        )
    if is_address(folder):
        raise UsageError(
            f"{shown(folder)} is in a store, where a build is not written to.",
            "Write the page to a file of this machine with -o FILE.",
        )
    page, expected = remake(folder)
    if hashlib.sha256(page).hexdigest() != expected:
        raise UsageError(
            f"The page of this version differs from the published page of {folder}.",
            "Write it elsewhere with -o FILE, or build again.",
        )
    target = folder / REPORT
    target.write_bytes(page)
    click.echo(str(target))


# ``pipeline diff``: what changed from one build to another.


_BUILD = click.Path(path_type=Path)


@command("diff")
@folder("one", "A", "A build, or RELEASES/ID with the first characters of an id.", _BUILD)
@folder("other", "B", "The other one.", _BUILD)
@click.option(
    "--page", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page there."
)
@JSON
def DIFF(one: Path, other: Path, page: Path | None, as_json: bool) -> None:
    """A and B are folders of builds; RELEASES/ID also with the first characters of an id."""
    from pipeline.report import difference

    found = difference.difference(difference.opened(one), difference.opened(other))
    if page is not None:
        from pipeline.report.difference import render

        page.write_text(render(found), "utf-8")
    if as_json:
        print_object(0, found)
    else:
        click.echo(lines.fit("\n".join(difference.lines(found))))
