"""The spine: inputs to parts, parts to shards, shards to a published build.

Six phases, each in its file: ``preparation``, ``parts``, ``planning``, ``shards``, ``assembly`` and
``publication``. Each takes and returns records that can be pickled, so that a build can go on in
another process ::

    prepared = prepare(config)                                    # one process
    made = make_parts(prepared, report, numbers=[0, 2, 4])        # others, each some of the splits
    made = join([made, *made_elsewhere])
    planned = plan(prepared, made)                                # one, or each of the next
    make_shards(prepared, planned, report, numbers=[1, 3])        # others, each some of the shards
    built = finish(prepared, made, report)                        # one again

as long as all of them have the same cache, inputs and version. To make shards apart is a choice:
``finish`` makes those that nobody has made. ``build`` runs all of it at once.

A build is made in a staging directory under the output's lock. The manifest is written last, and
only after every shard, read back from the disk, has passed every critical invariant.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.builder import rejects
from pipeline.builder.assembly import Assembled, assemble
from pipeline.builder.dataset import make_shards
from pipeline.builder.judge import Judge
from pipeline.builder.planning import MadeParts, Planned, join, make_parts, missing, plan
from pipeline.builder.preparation import Prepared, prepare, refuse_early
from pipeline.builder.publication import finish, finish_in, remember, require_replaceable
from pipeline.builds.limits import Built
from pipeline.inputs import equal_build
from pipeline.inputs.equal_build import Look
from pipeline.messages.progress import START, Report
from pipeline.messages.recorded import recorded
from pipeline.options.config import Config
from stages.errors import DataError

__all__ = [
    "Assembled",
    "Built",
    "MadeParts",
    "Planned",
    "Prepared",
    "Report",
    "assemble",
    "build",
    "finish",
    "join",
    "make",
    "make_parts",
    "make_shards",
    "missing",
    "plan",
    "prepare",
    "refuse_early",
]


def build(config: Config, report: Report) -> Built:
    """Build, judge and publish.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """

    def made() -> Built:
        report(START, 0, 1)
        with Judge(config) as judge:
            found = look(config)
            return found.built or make(config, found, judge, report)

    return recorded(config, made)


def look(config: Config) -> Look:
    """``equal_build.look``; what the inputs are refused for is kept in ``DIR.failed``."""
    try:
        return equal_build.look(config)
    except DataError as error:
        raise rejects.kept(error, config) from error


def make(
    config: Config,
    found: Look,
    judge: Judge,
    report: Report,
    *,
    parts: Callable[[Prepared, Report], MadeParts] = make_parts,
) -> Built:
    """The same where no equal build was found.

    Args:
        parts: gives the parts of all splits.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """
    judge.prepare()
    place = found.place
    try:
        prepared = prepare(config, found.inputs)
        require_replaceable(prepared, place)
        refuse_early(prepared)
    except DataError as error:
        raise rejects.kept(error, config) from error
    report(START, 1, 1)
    with place.staging() as folder:
        made = parts(prepared, report)
        if not prepared.is_read:
            prepared = prepared.having_read(made.reports)
            equal = equal_build.found_late(config, place, prepared.build_id)
            if equal is not None and config.run.data_docs is None:
                return equal
        built, assembled = finish_in(
            folder, place, prepared=prepared, made=made, judge=judge, report=report
        )
    remember(prepared, made, assembled)
    return built
