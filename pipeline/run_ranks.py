"""Runs one rank of a job array for the command line: its share of the parts, or of the shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from pipeline import memory
from pipeline.messages.following import following
from pipeline.messages.progress import PLAN, START
from pipeline.messages.result import OK, Result, of_builds
from pipeline.messages.session import Session, current
from pipeline.options.config import Config
from pipeline.run_build import workers
from stages import catalog
from stages.counted import counted
from stages.errors import UsageError

if TYPE_CHECKING:
    from pipeline.builder.build import Report
    from pipeline.builder.ranks import Rank

Share = Callable[[Config, "Rank", "Report"], Result]


def run_each(
    configs: Sequence[Config], share: Share, rank: Rank, in_json: bool, quiet: bool
) -> None:
    """Do a rank's share of each build; print where it left it on stdout, or what ``--json`` prints.

    Raises:
        PipelineError: the share of one of them; the builds after it are not begun.
    """
    session = current()
    session.in_json |= in_json
    ended = [_shown(config, share, rank, session, quiet) for config in configs]
    session.end(ended[0] if len(ended) == 1 else of_builds(ended))


def _shown(config: Config, share: Share, rank: Rank, session: Session, quiet: bool) -> Result:
    session.notify = session.notify or config.run.notify
    session.paths = {"output": config.run.shown}
    with following(session, quiet) as report:
        catalog.load("pipeline.executors", config.run.engine, "pmap")
        memory.without_pandas()
        with workers(config):
            result = share(config, rank, report)
    if not quiet and not session.in_lines:
        click.echo(result.message, err=True)
    if not session.in_json:
        click.echo(result.paths["left"])
    return result


def parts(config: Config, rank: Rank, report: Report) -> Result:
    """Make the parts of one rank.

    Raises:
        PipelineError: see ``ranks.make_share``.
    """
    from pipeline.builder import ranks
    from pipeline.builder.build import prepare, refuse_early

    report(START, 0, 1)
    prepared = prepare(config)
    refuse_early(prepared)
    report(START, 1, 1)
    made, again = ranks.make_share(prepared, rank, report)
    if again:
        listed = ", ".join(map(str, again))
        current().warn(
            f"the fast encoder differed from the reference, so rank {listed} has to run again"
        )
    rows = sum(one.rows for one in made.reports.values())
    total = len(prepared.splits)
    return Result(
        status=OK,
        code=0,
        message=f"parts     {len(made.reports)} of {total} by rank {rank.number} of {rank.of}, "
        f"{counted(rows, 'row')}",
        task=config.task,
        build_id=prepared.build_id,
        figures={"rank": rank.number, "of": rank.of, "parts": len(made.reports), "rows": rows},
        paths={"left": ranks.shown(prepared, rank.name)},
    )


def shards(config: Config, rank: Rank, report: Report) -> Result:
    """Make the shards of one rank.

    Raises:
        UsageError: parts are missing; the message names the ranks to run again.
        PipelineError: see ``build.make_shards``.
    """
    from pipeline.builder import planning, ranks
    from pipeline.builder.build import make_shards, plan, prepare

    if config.run.shared:
        raise UsageError(
            "pipeline shards needs a cache in a folder that all machines share, not in a store.",
            "Leave it out: pipeline commit makes the shards.",
        )
    report(START, 0, 1)
    prepared = prepare(config)
    made = ranks.joined(prepared, planning.reads_examples(prepared.config))
    prepared = prepared.having_read(made.reports)
    report(START, 1, 1)
    report(PLAN, 0, 1)
    planned = plan(prepared, made, report)
    report(PLAN, 1, 1)
    total = planned.n_shards
    share = rank.share(total)
    new = make_shards(prepared, planned, report, share)
    return Result(
        status=OK,
        code=0,
        message=f"shards    {len(share)} of {total} by rank {rank.number} of {rank.of}, "
        f"{len(share) - new} of them were there",
        task=config.task,
        build_id=prepared.build_id,
        figures={"rank": rank.number, "of": rank.of, "shards": len(share), "made": new},
        paths={"left": ranks.shown(prepared)},
    )
