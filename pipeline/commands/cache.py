"""``pipeline cache``: what the cache holds, and how to empty it."""

import shutil
import time
from pathlib import Path

import click

from pipeline.options.command_line import CACHE
from pipeline.options.help_page import group, option
from pipeline.options.paths import SHARED, local_cache
from pipeline.stores import is_address, open_store, shown
from stages.errors import UsageError

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
@option(
    "--days",
    type=click.FloatRange(0),
    default=30,
    help="Days without use after which a file is removed.",
)
def prune(cache_dir: Path, days: float) -> None:
    """A file's age counts from when it was last written or used."""
    if is_address(cache_dir):
        raise UsageError(
            "A store does not say when an object was last used, so nothing is removed from it.",
            "Let the store remove objects below parts/ after some days (a lifecycle rule); "
            "parts that are missing are made again.",
        )
    roots = (cache_dir, *(cache_dir / SHARED).glob("*"))  # with the copies of caches in stores
    folders = [root / kind for root in roots for kind in _PRUNED]
    before = time.time() - days * _DAY
    freed = 0
    for path in (path for folder in folders for path in _files(folder)):
        status = path.stat()
        if max(status.st_mtime, status.st_atime) <= before:
            freed += status.st_size
            path.unlink()
    for folder in folders if days == 0 else ():
        shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"{freed / 2**20:.1f} MiB freed")
