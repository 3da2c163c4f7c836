"""Runs a build for the command line: progress and summary on stderr, the result on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from pipeline import memory
from pipeline.builder.judge import Judge
from pipeline.builds import failed, standing
from pipeline.messages.following import following
from pipeline.messages.progress import START
from pipeline.messages.recorded import recorded
from pipeline.messages.session import Session, current
from pipeline.options.config import Config
from stages import catalog
from stages.counted import counted
from stages.errors import DataError, PipelineError, UsageError

if TYPE_CHECKING:
    from pipeline.builder.build import MadeParts, Prepared, Report
    from pipeline.builds.built import Built
    from pipeline.messages.result import Result

    Parts = Callable[[Prepared, Report], MadeParts]

MANY = 2  # pieces of work: so many that workers may divide them


def _built(config: Config, report: Report, parts: Parts | None) -> Built:
    """``pipeline.builder.build.build``; what it needs is imported when the judge's process has
    begun, and most of it only where something is to be made."""
    report(START, 0, 1)
    with Judge(config) as judge:
        if not config.run.address and not config.run.output.exists():
            judge.start()
        # Suites of the user, and pages, may need it.
        plain = not config.judge.expectations and config.run.data_docs is None
        from pipeline.inputs import equal_build

        try:
            with memory.pandas_hidden() if plain else nullcontext():
                found = equal_build.look(config)
        except DataError as error:
            from pipeline.builder import refusal

            raise refusal.kept(error, config) from error
        if found.built is not None:
            return found.built
        if plain:
            memory.without_pandas()
        # First of all: an engine's library may not be imported beside threads that import.
        catalog.load("pipeline.executors", config.run.engine, "pmap")
        judge.start()
        from pipeline.inputs import ahead

        splits = sum(len(source.splits) for source in found.inputs)
        fast = sum(source.bytes for source in found.inputs) >= ahead.FAST_FROM
        loads = partial(ahead.encoders, config, fast)
        with workers(config, splits, loads), ahead.tokenizer(config):
            from pipeline.builder.build import make, make_parts

            return make(config, found, judge, report, parts=parts or make_parts)


def workers(
    config: Config, splits: int = MANY, ahead: Callable[[], None] | None = None
) -> AbstractContextManager[None]:
    """What workers are copies of, where there will be some; or a connection to where they are.

    Args:
        splits: how many pieces of work there are at most.
        ahead: loads what workers will need.
    """
    if config.run.engine == "ray":
        from pipeline import ray

        return ray.connected(config.run.ray_address, config.run.processes)
    if splits == 1 or config.run.processes == 1 or config.run.engine != "local":
        return nullcontext()
    from pipeline.copies import copies

    modules = ("pipeline.shards.part", "pipeline.shards.layout", "expectations.validate")
    return copies(modules, *([ahead] if ahead else []))


def build_and_report(
    config: Config, in_json: bool, quiet: bool, parts: Parts | None = None
) -> None:
    """Build; print the manifest's path on stdout, or what ``--json`` prints.

    Args:
        parts: gives the parts, where others have made them.
    """
    session = current()
    session.in_json |= in_json
    session.notify = session.notify or config.run.notify
    session.end(_built_and_shown(config, session, quiet, parts))


def _built_and_shown(
    config: Config, session: Session, quiet: bool, parts: Parts | None = None
) -> Result:
    """Build one, with what people read of it; the paths of one that is refused are the session's.

    Raises:
        PipelineError: it is not built.
    """
    session.paths = {"output": config.run.shown}
    try:
        with following(session, quiet) as report:
            built = recorded(config, lambda: _built(config, report, parts))
        built = replace(built, notes=(*built.notes, *config.notes))
    except DataError:
        session.paths |= failed.paths_of(config.run.place)
        raise
    from pipeline.messages import result

    ended = result.of_built(built)
    if not quiet and not session.in_lines:
        _summarized(built)
    return ended


def build_each(
    configs: Sequence[Config], in_json: bool, quiet: bool, parts: Parts | None = None
) -> None:
    """Build one after the other; one that fails keeps none of the others back. A single one is
    told of as ``build_and_report`` does.

    Parts lie in the cache by what they depend on, so builds that differ in their shards alone
    encode the rows once. Ends with the status of the first build that failed.
    """
    if len(configs) == 1:
        build_and_report(configs[0], in_json, quiet, parts)
        return
    from pipeline.messages.result import of_builds, of_error, show

    session = current()
    session.in_json |= in_json
    session.notify = session.notify or configs[0].run.notify
    ended: list[Result] = []
    for config in configs:
        if not quiet and not session.in_lines:
            click.echo(f"build     {config.run.shown}", err=True)
        try:
            ended.append(_built_and_shown(config, session, quiet, parts))
        except BaseException as error:
            last = of_error(error, session.paths)
            ended.append(last)
            # An interruption, or a bug: no other build is begun.
            if not isinstance(error, PipelineError) and (last.code or config is not configs[-1]):
                standing.begin()
                more = [] if last.code else [of_error(error, session.paths)]
                session.end(of_builds([*ended, *more], stopped=True))
                raise
            if not session.in_lines:
                show(last, config.run.shown)
        session.print_path(ended[-1])
    every = of_builds(ended)
    if not quiet and not session.in_lines:
        _listed(configs, ended)
    session.end(every)
    if every.code:
        raise click.exceptions.Exit(every.code)


def _listed(configs: Sequence[Config], ended: Sequence[Result]) -> None:
    """What became of each build, in a line."""
    from pipeline.builds.summary import fitted
    from pipeline.lines import width

    lines = []
    for config, one in zip(configs, ended, strict=True):
        rows, tokens = (one.figures.get(name, {}) for name in ("rows", "tokens"))
        counts = (
            f"{counted(rows['used'], 'row')}, {counted(tokens['total'], 'token')}"
            if one.manifest
            else ""
        )
        said = counts or one.message.partition("\n")[0]
        lines.append(f"{one.status:<9} {config.run.shown}: {said}")
    for line in fitted(lines, width(sys.stderr)):
        click.echo(line, err=True)


def _fix(code: str) -> str:
    """What to do about rows with this code; empty for one that another package gives."""
    from pipeline.messages import explanations

    try:
        return explanations.find(code)[0].fix
    except UsageError:
        return ""


def _summarized(built: Built) -> None:
    from pipeline.builds import summary
    from pipeline.lines import width

    columns = width(sys.stderr)
    for line in summary.fitted(summary.summary(built, _fix), columns):
        click.echo(line, err=True)
    if not built.build.address:
        from pipeline.builder import next_steps

        for line in next_steps.lines(built.build.folder, built.build.manifest, columns):
            click.echo(line, err=True)
