"""``pipeline cache``: what the cache holds, and how to empty it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from pipeline.options.config import default_cache

_DIR = click.option("--cache-dir", type=click.Path(path_type=Path), default=None)
_DAY = 86400
_PRUNED = (
    "parts",
    "shards",
    "builds",
    "inputs",
    "hashes",
    "proved",
    "published",
    "recipes",
    "scans",
)


@click.group(name="cache", help="Show or prune the cache of parts, inputs and tokenizers.")
def COMMAND() -> None:
    """The cache only saves time: every file in it can be made again."""


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@COMMAND.command(help="Show where the cache is and how large it is.")
@_DIR
def info(cache_dir: Path | None) -> None:
    """One line per kind."""
    folder = cache_dir or default_cache()
    click.echo(str(folder))
    for kind in (*_PRUNED, "tokenizers"):
        files = _files(folder / kind)
        size = sum(path.stat().st_size for path in files)
        click.echo(f"{kind:<10} {len(files):>7} files {size / 2**20:>10.1f} MiB")


@COMMAND.command(help="Remove what no build has used for some days; tokenizers stay.")
@_DIR
@click.option("--days", type=click.FloatRange(0), default=30, show_default=True)
def prune(cache_dir: Path | None, days: float) -> None:
    """A file's age counts from when it was last written or used."""
    folders = [(cache_dir or default_cache()) / kind for kind in _PRUNED]
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
