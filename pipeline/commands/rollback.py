"""``pipeline rollback``: an earlier version becomes the current one again."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.messages.result import print_object
from pipeline.options import headings as under
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import Command, argument, option
from pipeline.options.local_path import BuildPath


@click.command(
    name="rollback",
    cls=Command,
    help="Make an earlier version current: the one before, or the one named.",
    heading=under.BUILDS,
    examples=(
        ("pipeline rollback releases", "The version before the current one"),
        ("pipeline versions releases", "Which versions there are"),
        ("pipeline versions list releases --json", "What is current now, for a program"),
    ),
)
@folder("releases", "RELEASES", "A folder, or an address, of builds.", BuildPath())
@argument("version", required=False, help="The first characters of an id.", heading=under.DATA)
@option(
    "--single-writer",
    is_flag=True,
    heading=under.OUTPUT,
    help="In a store that cannot decide between two writers: no other run writes there.",
)
@JSON
def COMMAND(releases: Path, version: str | None, single_writer: bool, as_json: bool) -> None:
    """The version that is left is not published again by a build of the same inputs."""
    from pipeline.builds import history, store_versions, versions
    from pipeline.stores import is_address, open_store, shown

    store = open_store(releases) if is_address(releases) else None
    if store is None:
        before, now = versions.rollback(releases, version)
    else:
        before, now = store_versions.rollback(store, version, single_writer)
    if before != now.build_id:
        line = history.entry(
            history.ROLLED_BACK,
            f"{now.build_id[: versions.SHORT]} is current again",
            build_id=now.build_id,
            rolled_back_from=before,
            current=now.build_id,
        )
        if store is None:
            history.append(releases, line)
        else:
            store_versions.append(store, line, single_writer or not store.conditions)
    if as_json:
        paths = {"build": shown(now.folder), "current": shown(releases / versions.CURRENT)}
        print_object(0, {"build_id": now.build_id, "rolled_back_from": before, "paths": paths})
    else:
        old = "none" if before is None else before[: versions.SHORT]
        click.echo(f"current: {now.build_id[: versions.SHORT]} (before: {old})")
