"""Runs a build for the command line: progress and summary on stderr, the result on stdout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pipeline.builds import failed, lease, place, versions
from pipeline.inputs import declared, equal_build
from pipeline.lines import width
from pipeline.messages import progress, result
from pipeline.messages.progress import Report
from pipeline.messages.session import Session, current, following
from pipeline.options.config import Config
from stages.errors import DataError, PipelineError, UsageError, counted

if TYPE_CHECKING:
    from pipeline.builder.planning import MadeParts
    from pipeline.builder.preparation import Prepared
    from pipeline.builder.ranks import Rank
    from pipeline.builds.limits import Built

    Parts = Callable[[Prepared, Report], MadeParts]


def build(config: Config, report: Report, parts: Parts | None = None) -> Built:
    """Build, judge and publish, unless an equal build is there.

    Args:
        parts: gives the parts, where others have made them.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """
    return recorded(config, lambda: _built(config, report, parts))


def _built(config: Config, report: Report, parts: Parts | None) -> Built:
    """The same; what makes a build is imported where one is made."""
    report(progress.START, 0, 1)
    declared.require_model(config)
    try:
        found = equal_build.look(config)
    except DataError as error:
        from pipeline.builder import rejects

        raise rejects.kept(error, config) from error
    if found.built is not None:
        return found.built
    from pipeline.builder.build import make
    from pipeline.builder.planning import make_parts

    return make(config, found, report, parts or make_parts)


def _built_and_shown(
    config: Config, session: Session, quiet: bool, parts: Parts | None
) -> result.Result:
    """Build one, with what people read of it; the paths of one that is refused are the session's.

    Raises:
        PipelineError: it is not built.
    """
    session.paths = {"output": config.run.shown}
    try:
        with following(session, quiet) as report:
            built = build(config, report, parts)
        built = replace(built, notes=(*built.notes, *config.notes))
    except DataError:
        session.paths |= failed.paths_of(config.run.place)
        raise
    ended = result.of_built(built)
    if not quiet and not session.in_lines:
        _summarized(built)
    return ended


def build_each(
    configs: Sequence[Config], in_json: bool, quiet: bool, parts: Parts | None = None
) -> None:
    """Build one after the other; one that fails keeps none of the others back. Print the
    manifest's path on stdout, or what ``--json`` prints.

    Parts lie in the cache by what they depend on, so builds that differ in their shards alone
    encode the rows once. Ends with the status of the first build that failed.

    Args:
        parts: gives the parts, where others have made them.
    """
    session = current()
    session.begin(in_json, configs[0].run.notify)
    if len(configs) == 1:
        session.end(_built_and_shown(configs[0], session, quiet, parts))
        return
    ended: list[result.Result] = []
    for config in configs:
        if not quiet and not session.in_lines:
            click.echo(f"build     {config.run.shown}", err=True)
        try:
            ended.append(_built_and_shown(config, session, quiet, parts))
        except BaseException as error:
            last = result.of_error(error, session.paths)
            ended.append(last)
            # An interruption, or a bug: no other build is begun.
            if not isinstance(error, PipelineError) and (last.code or config is not configs[-1]):
                failed.begin()
                more = [] if last.code else [result.of_error(error, session.paths)]
                session.end(result.of_builds([*ended, *more], stopped=True))
                raise
            if not session.in_lines:
                result.show(last, config.run.shown)
        session.print_path(ended[-1])
    every = result.of_builds(ended)
    if not quiet and not session.in_lines:
        _listed(configs, ended)
    session.end(every)
    if every.code:
        raise click.exceptions.Exit(every.code)


def _listed(configs: Sequence[Config], ended: Sequence[result.Result]) -> None:
    """What became of each build, in a line."""
    from pipeline.builds.summary import fitted

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


def _summarized(built: Built) -> None:
    from pipeline.builds import summary
    from pipeline.messages.explanations import fix_of

    columns = width(sys.stderr)
    for line in summary.fitted(summary.summary(built, fix_of), columns):
        click.echo(line, err=True)
    if not built.build.address:
        from pipeline.builder import launch

        for line in launch.lines(built.build.folder, built.build.manifest, columns):
            click.echo(line, err=True)


# Runs one rank of a job array for the command line: its share of the parts, or of the shards.


Share = Callable[[Config, "Rank", "Report"], result.Result]


def run_each(
    configs: Sequence[Config], share: Share, rank: Rank, in_json: bool, quiet: bool
) -> None:
    """Do a rank's share of each build; print where it left it on stdout, or what ``--json`` prints.

    Raises:
        PipelineError: the share of one of them; the builds after it are not begun.
    """
    session = current()
    session.begin(in_json, configs[0].run.notify)
    ended = [_shown(config, share, rank, session, quiet) for config in configs]
    session.end(ended[0] if len(ended) == 1 else result.of_builds(ended))


def _shown(
    config: Config, share: Share, rank: Rank, session: Session, quiet: bool
) -> result.Result:
    session.paths = {"output": config.run.shown}
    with following(session, quiet) as report:
        from pipeline.builder.preparation import workers

        with workers(config.run):
            ended = share(config, rank, report)
    if not quiet and not session.in_lines:
        click.echo(ended.message, err=True)
    if not session.in_json:
        click.echo(ended.paths["left"])
    return ended


def parts(config: Config, rank: Rank, report: Report) -> result.Result:
    """Make the parts of one rank.

    Raises:
        PipelineError: see ``ranks.make_share``.
    """
    from pipeline.builder import ranks
    from pipeline.builder.preparation import prepare, refuse_early

    report(progress.START, 0, 1)
    prepared = prepare(config)
    refuse_early(prepared)
    report(progress.START, 1, 1)
    made, again = ranks.make_share(prepared, rank, report)
    if again:
        listed = ", ".join(map(str, again))
        current().warn(
            f"the fast encoder differed from the reference, so rank {listed} has to run again"
        )
    rows = sum(one.rows for one in made.reports.values())
    counts = {"parts": len(made.reports), "rows": rows}
    where = ranks.shown(prepared, rank.name)
    return _left(prepared, rank, counts, len(prepared.splits), counted(rows, "row"), where)


def _left(
    prepared: Prepared, rank: Rank, counts: dict[str, int], total: int, said: str, where: str
) -> result.Result:
    """What a rank has made: ``counts`` of it, the pieces first, of which there are ``total``."""
    name, pieces = next(iter(counts.items()))
    return result.Result(
        status=result.OK,
        code=0,
        message=f"{name:<9} {pieces} of {total} by rank {rank.number} of {rank.of}, {said}",
        task=prepared.config.task,
        build_id=prepared.build_id,
        figures={"rank": rank.number, "of": rank.of, **counts},
        paths={"left": where},
    )


def shards(config: Config, rank: Rank, report: Report) -> result.Result:
    """Make the shards of one rank.

    Raises:
        UsageError: parts are missing; the message names the ranks to run again.
        PipelineError: see ``dataset.make_shards``.
    """
    from pipeline.builder import planning, ranks
    from pipeline.builder.dataset import make_shards
    from pipeline.builder.preparation import prepare

    if config.run.shared:
        raise UsageError(
            "pipeline shards needs a cache in a folder that all machines share, not in a store.",
            "Leave it out: pipeline commit makes the shards.",
        )
    report(progress.START, 0, 1)
    prepared = prepare(config)
    made = ranks.joined(prepared, planning.reads_examples(prepared.config))
    prepared = prepared.having_read(made.reports)
    report(progress.START, 1, 1)
    report(progress.PLAN, 0, 1)
    planned = planning.plan(prepared, made, report)
    report(progress.PLAN, 1, 1)
    share = rank.share(planned.n_shards)
    new = make_shards(prepared, planned, report, share)
    counts, said = {"shards": len(share), "made": new}, f"{len(share) - new} of them were there"
    return _left(prepared, rank, counts, planned.n_shards, said, ranks.shown(prepared))


# What a run has published stands, and where versions are kept a line tells of it.

_LEFT_OUT = ("paths", "manifest")


def recorded(config: Config, build: Callable[[], Built]) -> Built:
    """What ``build`` gives or raises; where versions are kept, with a line in their history.

    A run that is killed writes none; the next one writes it in its place. What went wrong behind
    the publication is told as a warning.

    Raises:
        UsageError: the output is not ours to write to.
        KeyboardInterrupt: also behind the publication.
    """
    failed.begin()
    kept = place.place_of(config.run).versions if config.run.keep or config.run.address else None
    if kept is not None:
        kept.record_killed()
    began = time.time()
    try:
        try:
            built = build()
        except BaseException as error:
            with suppress(OSError):  # the error is worth more than its line
                _record(kept, result.of_error(error), began)
            raise
        _record(kept, result.of_built(failed.publishing(built)), began)
    except Exception as error:
        result.of_error(error)
        stands = failed.now()
        if stands is None:
            raise
        current().warn(stands.trouble[-1])
        return stands
    return built


def _record(kept: versions.Versions | None, ended: result.Result, began: float) -> None:
    if kept is None:
        return
    described = {k: v for k, v in ended.described().items() if k not in _LEFT_OUT}
    seconds = round(time.time() - began, 3)
    try:
        kept.record({"time": lease.stamp(began), "seconds": seconds, **described})
    except PipelineError as error:  # of a store
        raise OSError(error.what) from error
