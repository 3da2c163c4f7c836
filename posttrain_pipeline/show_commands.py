"""``pipeline show``, ``overlaps``, ``report`` and ``diff``: what looks at finished builds."""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import DRAWN, ROWS, Option, command
from pipeline.options.paths import BuildPath, LocalPath
from stages.errors import UsageError

_which = partial(click.option, cls=Option, heading=ROWS)
_drawn = partial(click.option, cls=Option, heading=DRAWN)


@command("show")
@folder("folder", "DIR", "The build, or its address in a store.", BuildPath())
@_which("--row", metavar="ID")
@_which("--pack", type=click.IntRange(0), metavar="N")
@_which("--random", type=click.IntRange(1), metavar="N")
@_which("--seed", type=int)
@_which("--where", metavar="CONDITION")
@_which("--after", metavar="ID")
@_which("--before", metavar="ID")
@_which("--limit", type=click.IntRange(1), metavar="N")
@_which("--count", is_flag=True)
@_which("--fields", is_flag=True)
@_which("--split")
@_drawn("--boundaries", is_flag=True)
@_drawn("--ids", is_flag=True)
@_drawn("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
def COMMAND(folder: Path, color: str, split: str | None, **asked: Any) -> None:
    """Without a choice, the first stored row."""
    _require_one_way(asked)
    from pipeline.builds.build import Build
    from pipeline.report.drawing import Shards
    from pipeline.report.pages import Pages, Shown
    from pipeline.report.painter import Marks

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


# ``pipeline overlaps``: which rows a build left out for being like others, with both texts.


@command("overlaps")
@folder("folder", "DIR", "The build.")
@click.option("--evaluation", metavar="NAME")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True)
@JSON
def OVERLAPS(folder: Path, evaluation: str | None, limit: int, as_json: bool) -> None:
    """In input order."""
    from pipeline.builds.build import Build
    from pipeline.manifest.json_records import as_json as plain

    build = Build.open(folder)
    record = build.manifest.decontamination
    names = [one.name for one in record.evaluations] if record else []
    if evaluation is not None and evaluation not in names:
        raise UsageError(
            f"{folder} was not compared with an evaluation called {evaluation}.",
            f"It was compared with: {', '.join(names) or 'none'}.",
        )
    found = (hit for hit in build.contaminated() if evaluation in (None, hit.evaluation))
    hits = list(islice(found, limit or None))
    alike = list(islice(build.near_duplicates(), limit or None)) if evaluation is None else []
    if as_json:
        said = {"decontamination": record, "near_duplicates": build.manifest.near_duplicates}
        counts: dict[str, Any] = {key: one and plain(one) for key, one in said.items()}
        listed = {"contaminated": list(map(plain, hits)), "alike": list(map(plain, alike))}
        click.echo(json.dumps(counts | listed))
        return
    page = lines.templates(Path(__file__).parent).get_template("overlaps.jinja")
    told = page.render(hits=hits, alike=alike, m=build.manifest, evaluation=evaluation)
    click.echo(told, nl=False)


# ``pipeline report``: the page of a finished build, made again from its files.


@command("report")
@folder("folder", "DIR", "The build, or its address in a store.", BuildPath())
@click.option("-o", "--output", type=LocalPath(dir_okay=False))
@click.option("--against", type=BuildPath(), metavar="OTHER")
def REPORT(folder: Path, output: Path | None, against: Path | None) -> None:
    """Inside the build only the very page that its manifest names is written."""
    from pipeline.manifest.records import REPORT
    from pipeline.report.page import remake, with_changes
    from pipeline.stores import is_address, shown

    if output is not None:
        output.write_bytes(with_changes(folder, against))
        click.echo(str(output))
        return
    if against is not None:
        raise UsageError(
            "The page in a build cannot compare it with others: equal builds have equal pages.",
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
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path))
@JSON
def DIFF(one: Path, other: Path, page: Path | None, as_json: bool) -> None:
    """A and B are folders of builds; RELEASES/ID also with the first characters of an id."""
    from pipeline.report import difference

    found = difference.difference(difference.opened(one), difference.opened(other))
    if page is not None:
        page.write_text(difference.render(found), "utf-8")
    if as_json:
        print_object(0, found)
    else:
        click.echo(difference.as_text(found))
