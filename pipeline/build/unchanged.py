"""What a build leaves for the next one of the same output, so that this reads only what changed.

A build has hashed its inputs, its parts and its shards. The hashes are kept with what the file
system says of each file now that the build is in its place. The next build compares that first, and
reads the files that differ. A changed byte that leaves size and times as they were, on a failing
disk for instance, is found by ``--verify`` and by ``pipeline check``, which read everything.
"""

from __future__ import annotations

from pipeline.build.assembly import Assembled
from pipeline.build.parts import MadeParts, works_of
from pipeline.build.preparation import Prepared
from pipeline.parts.part import PartReport, Work
from pipeline.publish.places import place_of
from pipeline.recipe import equal_build
from stages.files import file_state
from stages.files.known_hashes import KnownHashes


def keep(prepared: Prepared, made: MadeParts, assembled: Assembled) -> None:
    """Keep the hashes of a build that has just been published."""
    config = prepared.config
    hashes = equal_build.known_hashes(config, empty=True)
    for source in prepared.inputs:
        if source.version is not None and source.version.state and source.version.settled:
            hashes.keep(source.path, source.sha256, source.version.state)
    for number, work in enumerate(works_of(prepared, made.backend)):
        _keep_part(hashes, work, made.reports[number])
    folder = place_of(config.run).build(prepared.build_id)
    for shard in assembled.build.manifest.shards:
        path = folder / shard.path
        if shard.path in assembled.seen:
            hashes.keep(path, shard.sha256, assembled.seen[shard.path], linked=True)
    hashes.save()


def _keep_part(hashes: KnownHashes, work: Work, report: PartReport) -> None:
    """Keep the hashes of a part's files, if nothing was written to them since its report was, or
    since the part was last found to be as its report has it: both change the report last."""
    try:
        files = {
            work.path: report.sha256,
            work.files.plan: report.plan_sha256,
            work.rejects: report.rejects_sha256,
        }
        states = {path: file_state.of(path) for path in files}
        vouched = file_state.of(work.report).changed
    except OSError:  # pruned meanwhile
        return
    for path, sha256 in files.items():
        if states[path].changed <= vouched:
            hashes.keep(path, sha256, states[path])
