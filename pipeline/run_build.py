"""Runs a build for the command line: progress and summary on stderr, the result on stdout."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from pipeline import memory
from pipeline.executors._copies import copies
from pipeline.options.config import Config
from pipeline.verdict.judge import Judge

if TYPE_CHECKING:
    from pipeline.build import Report
    from pipeline.build_dir.built import Built
    from pipeline.recipe.equal_build import Look


class _Bar:
    """A progress line that is rewritten in place, at most ten times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last > 0.1 or done == total:
            self._last = now
            end = "\n" if done == total else ""
            click.echo(f"\r{what:<8} {done}/{total}", err=True, nl=False)
            click.echo(end, err=True, nl=False)


def _silent(what: str, done: int, total: int) -> None:
    return


def reporter(quiet: bool) -> Report:
    """A progress line on a terminal; elsewhere nothing."""
    return _Bar() if sys.stderr.isatty() and not quiet else _silent


def _built(config: Config, report: Report) -> Built:
    """``pipeline.build.build``; what it needs is imported when the judge's process has begun, and
    most of it only where something is to be made."""
    with Judge(config) as judge:
        if not config.run.output.exists():
            judge.start()
        if not config.judge.expectations and config.run.data_docs is None:
            memory.without_pandas()  # which suites of the user, and pages, may need
        from pipeline.recipe import equal_build

        found = equal_build.look(config)
        if found.built is not None:
            return found.built
        judge.start()
        from pipeline.recipe import ahead

        with _workers(config, found), ahead.tokenizer(config):
            from pipeline.build import make

            return make(config, found, judge, report)


def _workers(config: Config, found: Look) -> AbstractContextManager[None]:
    """What workers are copies of, where there will be some."""
    splits = sum(len(source.splits) for source in found.inputs)
    if splits == 1 or config.run.processes == 1 or config.run.engine != "local":
        return nullcontext()
    return copies(("pipeline.parts.part", "pipeline.shards.gather", "expectations.validate"))


def build_and_report(config: Config, in_json: bool, quiet: bool) -> None:
    """Build; print the manifest's path (or the manifest) on stdout."""
    built = _built(config, reporter(quiet))
    from pipeline.build_dir.summary import summary
    from pipeline.manifest.json_records import one_line
    from pipeline.manifest.manifest import MANIFEST

    if not quiet:
        click.echo(summary(built), err=True)
    folder, manifest = built.build.folder, built.build.manifest
    if manifest.for_:
        from pipeline.trainers import launch

        started = launch.command(folder, manifest.for_)
        click.echo(f"train     {started}", err=True)
    click.echo(one_line(manifest) if in_json else str(folder / MANIFEST))
