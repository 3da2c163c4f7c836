"""The spine: inputs to parts, parts to shards, shards to a published build.

Four phases, each in its file: ``preparation``, ``parts``, ``assembly`` and ``publication``. Each
takes and returns records that can be pickled, so that a build can go on in another process ::

    prepared = prepare(config)                                    # one process
    made = make_parts(prepared, report, numbers=[0, 2, 4])        # others, each some of the splits
    built = finish(prepared, join([made, *made_elsewhere]), report)    # one again

as long as all of them have the same cache, inputs and version. ``build`` runs all of it at once.

A build is made in a staging directory under the output's lock. The manifest is written last, and
only after every shard, read back from the disk, has passed every critical invariant.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.build.assembly import Assembled, assemble
from pipeline.build.parallel import Report
from pipeline.build.parts import MadeParts, join, make_parts, missing
from pipeline.build.preparation import Prepared, identify, judge_of, prepare, refuse_early
from pipeline.build.publication import Built, finish, finish_in, up_to_date
from pipeline.inputs.scan import scan
from pipeline.options.config import Config
from pipeline.publish import publish
from pipeline.sources import local

__all__ = [
    "Assembled",
    "Built",
    "MadeParts",
    "Prepared",
    "Report",
    "assemble",
    "build",
    "finish",
    "join",
    "make_parts",
    "missing",
    "prepare",
]


def build(config: Config, report: Report) -> Built:
    """Build, judge and publish.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """
    target = publish.check_target(config.run.output)
    inputs = scan(config)
    key = identify(config, inputs) if config.run.data_docs is None else None
    there = up_to_date(target, key) if key else None
    if there is not None:
        there = replace(there, folder=config.run.output)
        return Built(there, fresh=False, left_out=tuple(local.left_out(config.source.data)))
    with judge_of(config) as judge:
        prepared = prepare(config, inputs)
        refuse_early(prepared)
        with publish.staging(target) as folder:
            made = make_parts(prepared, report)
            return finish_in(
                folder, target, prepared=prepared, made=made, judge=judge, report=report
            )
