"""``pipeline cache`` and ``stage``: what builds keep for the next ones; one of their steps."""

import shutil
import time
from pathlib import Path
from typing import Any

import click

from pipeline.options.command_line import BUILD, CACHE, config_from, for_task, output, with_options
from pipeline.options.command_line import data as data_argument
from pipeline.options.help_page import DATA, argument, group, option
from pipeline.options.paths import FILE, SHARED, LocalPath, local_cache
from pipeline.stores import is_address, open_store, shown
from stages.errors import UsageError, counted

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


# ``pipeline stage``: one stage alone, Arrow in, Arrow out.


@group("stage")
def STAGE() -> None:
    """Holds one subcommand per stage."""


def _done(refused: int, output: Path) -> None:
    click.echo(f"{counted(refused, 'row')} refused", err=True)
    click.echo(str(output))


@STAGE.subcommand("normalize")
@data_argument()
@for_task(required=True)
@with_options(BUILD)
def normalize(data: tuple[str, ...], task: str, **given: Any) -> None:
    """The first stage."""
    from pipeline.builder.stagewise import run_until

    config = config_from(task, data, given)
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
