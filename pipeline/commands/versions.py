"""``pipeline versions``: which versions a folder has, and who keeps one from being removed."""

from pathlib import Path
from typing import Any

import click

from pipeline import lines
from pipeline.builds import folder_versions, place, publish
from pipeline.builds.versions import SHORT, Version
from pipeline.messages.result import print_object
from pipeline.options.command_line import JSON, folder
from pipeline.options.help_page import DATA, OUTPUT, Group, argument, command, group, option
from pipeline.options.paths import BuildPath
from pipeline.stores import is_address, shown
from stages.errors import PipelineError, UsageError

_RELEASES = folder("releases", "RELEASES", "A folder, or an address, of builds.", BuildPath())
_VERSION = argument("version", heading=DATA)
_NAME = option("--as", "name", default="hold")


class _Versions(Group):
    """Without the name of a subcommand, ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else ["list", *args])


@group("versions", _Versions)
def COMMAND() -> None:
    """Versions are what ``--keep`` makes."""


def _named(version: Version) -> dict[str, Any]:
    """What is known of a version without reading it."""
    return {
        "build_id": version.build_id,
        "path": shown(version.folder),
        "current": version.current,
        "withdrawn": version.withdrawn,
        "holds": list(version.holds),
    }


def _described(version: Version) -> dict[str, Any]:
    from pipeline.builds.build import Build

    entry = _named(version)
    if version.fault:
        return {**entry, "damaged": version.fault}
    try:
        build = Build.open(version.folder)
        manifest = build.manifest
        entry |= {
            "built": build.run.started,
            "task": manifest.task,
            "model": manifest.model.name,
            "rows": manifest.rows.used,
            "trained_tokens": manifest.tokens.trained,
        }
    except PipelineError as error:
        entry["damaged"] = error.what
    return entry


def _in_folder(releases: Path) -> folder_versions.FolderVersions:
    """Raises UsageError for a store, where nobody holds a version."""
    if is_address(releases):
        raise UsageError(
            f"{shown(releases)} is in a store, where versions cannot be held.",
            "Build with a larger --keep, so that versions stay for longer.",
        )
    return folder_versions.FolderVersions(releases)


def _line(entry: dict[str, Any], short: int) -> str:
    head = f"{entry['build_id'][:short]}  "
    marks = ["current"] if entry["current"] else ["rolled back"] if entry["withdrawn"] else []
    marks += [f"held by {', '.join(entry['holds'])}"] if entry["holds"] else []
    if "damaged" in entry:
        return f"{head}damaged: {'; '.join([entry['damaged'], *marks])}"
    numbers = f"{entry['rows']:>9} rows {entry['trained_tokens']:>12} trained tokens"
    what = f"{entry['built']}  {entry['task']} for {entry['model']}"
    return f"{head}{what}  {numbers}  {', '.join(marks)}".rstrip()


@COMMAND.subcommand("list")
@_RELEASES
@JSON
def listed(releases: Path, as_json: bool) -> None:
    """One line for each."""
    known = place.versions_of(releases)
    damaged = [one for one in known.found() if one.fault]
    entries = [*map(_described, [*known.all(), *damaged])]
    if as_json:
        now = next((one["build_id"] for one in entries if one["current"]), None)
        print_object(0, {"current": now, "versions": entries})
        return
    for entry in entries:
        click.echo(lines.fit(_line(entry, SHORT)))


@COMMAND.subcommand("hold")
@_RELEASES
@_VERSION
@_NAME
def hold(releases: Path, version: str, name: str) -> None:
    """VERSION is ``current``, or the first characters of an id."""
    known = _in_folder(releases)
    found = known.find(version)
    known.hold(found.build_id, name)
    click.echo(str(found.folder))


@COMMAND.subcommand("release")
@_RELEASES
@_VERSION
@_NAME
def release(releases: Path, version: str, name: str) -> None:
    """The version is removed by a later build, when enough newer ones are there."""
    known = _in_folder(releases)
    found = known.find(version)
    if not known.release(found.build_id, name):
        holders = ", ".join(found.holds) or "nobody"
        raise UsageError(
            f"{found.build_id[:SHORT]} is not held by {name!r}.", f"It is held by {holders}."
        )


# ``pipeline rollback``: an earlier version becomes the current one again.


@command("rollback")
@folder("releases", "RELEASES", "A folder, or an address, of builds.", BuildPath())
@argument("version", required=False, heading=DATA)
@option("--single-writer", is_flag=True, heading=OUTPUT)
@JSON
def ROLLBACK(releases: Path, version: str | None, single_writer: bool, as_json: bool) -> None:
    """The version that is left is not published again by a build of the same inputs."""
    before, now = place.versions_of(releases, single_writer or None).rollback(version)
    if as_json:
        paths = {"build": shown(now.folder), "current": shown(releases / publish.CURRENT)}
        print_object(0, {"build_id": now.build_id, "rolled_back_from": before, "paths": paths})
    else:
        old = "none" if before is None else before[:SHORT]
        click.echo(f"current: {now.build_id[:SHORT]} (before: {old})")
