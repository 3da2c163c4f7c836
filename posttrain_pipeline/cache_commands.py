"""``pipeline cache``, ``stage``, ``versions``, ``rollback``: what builds keep; one step of them."""

import shutil
import time
from pathlib import Path
from typing import Any

import click

from pipeline import lines
from pipeline.builds import folder_versions, place, publish
from pipeline.builds.versions import SHORT, Version
from pipeline.messages.result import print_object
from pipeline.options import command_line as shared
from pipeline.options.command_line import CACHE, JSON, folder, output, with_options
from pipeline.options.help_page import DATA, OUTPUT, Group, argument, command, group, option
from pipeline.options.paths import FILE, SHARED, BuildPath, LocalPath, local_cache
from pipeline.stores import is_address, open_store, shown
from stages.errors import PipelineError, UsageError, counted

_DAY = 86400
_PRUNED = tuple("parts shards builds outputs fetched inputs hashes proved published scans".split())


@group("cache")
def COMMAND() -> None:
    """The cache only saves time: every file in it can be made again."""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@COMMAND.subcommand("info")
@CACHE
def info(cache_dir: Path) -> None:
    """One line per kind; of parts in a store one more."""
    if is_address(cache_dir):
        sizes = [one.size for one in open_store(cache_dir).list("parts").values()]
        click.echo(shown(cache_dir))
        click.echo(f"{'parts':<10} {len(sizes):>7} files {sum(sizes) / 2**20:>10.1f} MiB")
    folder = local_cache(cache_dir)
    click.echo(str(folder))
    for kind in (*_PRUNED, "tokenizers"):
        files = _files(folder / kind)
        size = sum(path.stat().st_size for path in files)
        click.echo(f"{kind:<10} {len(files):>7} files {size / 2**20:>10.1f} MiB")


@COMMAND.subcommand("prune")
@CACHE
@option("--days", type=click.FloatRange(0), default=30)
def prune(cache_dir: Path, days: float) -> None:
    """A file's age counts from when it was last written or used."""
    if is_address(cache_dir):
        raise UsageError(
            "A store does not say when an object was last used, so nothing is removed from it.",
            "Let the store remove objects below parts/ after some days (a lifecycle rule); "
            "parts that are missing are made again.",
        )
    roots = (cache_dir, *(cache_dir / SHARED).glob("*"))  # with the copies of caches in stores
    kinds = [root / kind for root in roots for kind in _PRUNED]
    before = time.time() - days * _DAY
    freed = 0
    for path in (path for root in kinds for path in _files(root)):
        status = path.stat()
        if max(status.st_mtime, status.st_atime) <= before:
            freed += status.st_size
            path.unlink()
    for root in kinds if days == 0 else ():
        shutil.rmtree(root, ignore_errors=True)
    click.echo(f"{freed / 2**20:.1f} MiB freed")


# ``pipeline stage``: one stage alone, Arrow in, Arrow out.


@group("stage")
def STAGE() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{counted(refused, 'row')} refused", err=True)
    click.echo(str(output))


@STAGE.subcommand("normalize")
@shared.data()
@shared.for_task(required=True)
@with_options(shared.BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.builder.stagewise import run_until

    config = shared.config_from(task, data, given)
    _done(run_until(config, "normalize"), config.run.output)


_IN = argument("source", type=FILE, heading=DATA)
_OUT = output(LocalPath(), required=True)


def _add(name: str, layout: bool) -> None:
    """Add the command of a stage, or of a layout."""

    def command(source: Path, output: Path, cache_dir: Path, pad_to: str | None = None) -> None:
        from pipeline.builder.stagewise import run_layout, run_stage

        run, options = (run_layout if layout else run_stage), {"pad_to": pad_to} if pad_to else {}
        _done(run(name, source, output, local_cache(cache_dir), **options), output)

    pad_to = click.option("--pad-to", metavar="WIDTH", default=None)
    taken = (_IN, _OUT, CACHE, *([pad_to] if layout else []))
    STAGE.subcommand(name)(with_options(taken)(command))


for _name in ("render", "mark", "encode", "accept", "validate"):
    _add(_name, layout=False)
for _name in ("pack", "pad", "ragged"):
    _add(_name, layout=True)


# ``pipeline versions``: which versions a folder has, and who keeps one from being removed.

_RELEASES = folder("releases", "RELEASES", "A folder, or an address, of builds.", BuildPath())
_VERSION = argument("version", heading=DATA)
_NAME = option("--as", "name", default="hold")


class _Versions(Group):
    """Without the name of a subcommand, ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named or not args else ["list", *args])


@group("versions", _Versions)
def VERSIONS() -> None:
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


@VERSIONS.subcommand("list")
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


@VERSIONS.subcommand("hold")
@_RELEASES
@_VERSION
@_NAME
def hold(releases: Path, version: str, name: str) -> None:
    """VERSION is ``current``, or the first characters of an id."""
    known = _in_folder(releases)
    found = known.find(version)
    known.hold(found.build_id, name)
    click.echo(str(found.folder))


@VERSIONS.subcommand("release")
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
