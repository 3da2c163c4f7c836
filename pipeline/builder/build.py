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
``finish`` makes those that nobody has made. ``make`` runs all of it at once.

A build is made in a staging directory under the output's lock. The manifest is written last, and
only after every shard, read back from the disk, has passed every critical invariant.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pipeline.builder import planning, rejects
from pipeline.builder.assembly import Assembled, assemble, require_rows
from pipeline.builder.judge import Judge
from pipeline.builder.planning import MadeParts, make_parts, require_complete
from pipeline.builder.preparation import Prepared, prepare, refuse_early, workers
from pipeline.builds import failed, limits, publish
from pipeline.builds.build import Build
from pipeline.builds.limits import Built, drift
from pipeline.builds.place import Place, place_of
from pipeline.inputs import equal_build
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json, sealed
from pipeline.manifest.records import RUN, Change, RunRecord
from pipeline.messages.progress import PUBLISH, START, Report
from pipeline.options.config import Config
from pipeline.secrets import named
from pipeline.shards import part, reused_shards
from stages.errors import DataError
from stages.files import file_hash


def make(
    config: Config,
    found: equal_build.Look,
    report: Report,
    parts: Callable[[Prepared, Report], MadeParts] = make_parts,
) -> Built:
    """Build, judge and publish what no build that is there equals.

    Args:
        parts: gives the parts of all splits.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """
    place = found.place
    with Judge(config) as judge, workers(config.run):
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
            built, assembled = finish_in(folder, place, prepared, made, judge, report)
        remember(prepared, made, assembled)
        return built


# Last phase: a judged build takes its place in one step, or the old one stays as it was.
#
# ``run.json`` says when, where and how it was made. A build has hashed its inputs, its parts and
# its shards. The hashes are kept with what the file system says of each file now that the build is
# in its place. The next build of the same output compares that first, and reads the files that
# differ. A changed byte that leaves size and times as they were, on a failing disk for instance, is
# found by ``--verify`` and by ``pipeline check``, which read everything.


def finish(prepared: Prepared, made: MadeParts, report: Report) -> Built:
    """Assemble, judge and publish a build whose parts are made, by whichever processes.

    Both phases run here, under the lock of the output: nobody else may write to it in between.

    Raises:
        UsageError: the output is not ours to replace, or parts are missing.
        PipelineError: see ``assemble``; the old build, if any, is untouched.
    """
    place = place_of(prepared.config.run)
    require_replaceable(prepared, place)
    require_complete(prepared, made)
    prepared = prepared.having_read(made.reports)
    with Judge(prepared.config) as judge, place.staging() as folder:
        built, assembled = finish_in(folder, place, prepared, made, judge, report)
    remember(prepared, made, assembled)
    return built


def remember(prepared: Prepared, made: MadeParts, assembled: Assembled) -> None:
    """Keep the hashes of a build that has just been published, for the next; its workspace goes."""
    config = prepared.config
    hashes = equal_build.known_hashes(config, empty=True)
    for source in prepared.inputs:
        if source.version is not None and source.version.state and source.version.settled:
            hashes.keep(source.path, source.sha256, source.version.state)
    for number, work in enumerate(planning.works_of(prepared, made.backend)):
        _keep_part(hashes, work, made.reports[number])
    folder = place_of(config.run).build(prepared.build_id)
    for shard in assembled.build.manifest.shards:
        path = folder / shard.path
        if shard.path in assembled.seen:
            hashes.keep(path, shard.sha256, assembled.seen[shard.path], linked=True)
    hashes.save()
    reused_shards.remove(planning.workspace_of(prepared))


def finish_in(
    folder: Path, place: Place, prepared: Prepared, made: MadeParts, judge: Judge, report: Report
) -> tuple[Built, Assembled]:
    """The same in a staging directory that is there already.

    Returns:
        The build in its place, and what was assembled, of which hashes are kept when
        the staging directory is gone: to remove it changes what the file system says of shards
        that both builds have.

    Raises:
        DataError: the build is refused; why stays in ``DIR.failed``.
    """
    try:
        require_rows(prepared, made)
        assembled = assemble(prepared, made, folder, judge=judge, report=report)
        before = limits.opened(place.before)
        if before is not None and not prepared.config.run.replace:
            limits.require_within(before, assembled.build, prepared.config.run.drift)
    except DataError as error:
        raise rejects.kept(error, prepared.config, folder) from error
    report(PUBLISH, 0, 1)
    built = _publish(prepared, assembled, place)
    report(PUBLISH, 1, 1)
    return built, assembled


def require_replaceable(prepared: Prepared, place: Place) -> None:
    """What lies at the output is a build of the same task and model, or may be replaced anyway.

    Raises:
        UsageError: it is not.
    """
    before = limits.opened(place.before)
    if before is not None and not prepared.config.run.replace:
        model = prepared.recipe.model.profile.name
        limits.require_same_kind(before.manifest, prepared.config.task, model, place.shown_before)


def _publish(prepared: Prepared, assembled: Assembled, place: Place) -> Built:
    """Write ``run.json`` and the manifest, which makes the folder a build, and put it in place."""
    folder, config = assembled.build.folder, prepared.config
    changed = drift(place.before, assembled.build)
    write_json(folder / RUN, as_json(sealed(_run_record(prepared, changed))))
    written = publish.write_manifest(folder, assembled.build.manifest, assembled.verdict)
    replaced = place.build(written.build_id)
    left = publish.left_by_tools(replaced) if replaced.exists() else ()
    built = Built(
        Build(place.shown(written.build_id), written),
        fresh=True,
        drift=changed,
        left_out=prepared.left_out,
        left_by_tools=left,
        current=place.link,
    )
    failed.publishing(built, place.moment(folder, written.build_id))
    removed, notes = place.publish(folder, written.build_id)
    built = failed.publishing(replace(built, removed=removed, notes=notes))
    failed.clear(config.run.place)
    return built


def _peak_memory() -> int:
    """Bytes of the process, or of its largest worker."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    unit = 1024 if sys.platform != "darwin" else 1  # ru_maxrss is in KiB on Linux, bytes on macOS
    return max(peak, children) * unit


def _run_record(prepared: Prepared, changed: Mapping[str, Change] | None) -> RunRecord:
    """The run, unsealed."""
    recipe, started = prepared.recipe, prepared.started
    return RunRecord(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        seconds=round(time.time() - started, 3),
        peak_memory_bytes=_peak_memory(),
        workers=recipe.config.run.processes,
        engine=recipe.config.run.engine,
        tokenizer_source=named(recipe.tokenizer_source),
        fetched=recipe.fetched,
        tokenizer_revision=recipe.model.profile.revision,
        model=named(recipe.config.parts.model),
        inputs=tuple(source.address for source in prepared.inputs),
        python=sys.version.split()[0],
        drift=changed,
        files_left_out=tuple(Path(path).name for path in prepared.left_out),
    )


def _keep_part(hashes: file_hash.KnownHashes, work: part.Work, report: part.PartReport) -> None:
    """Keep the hashes of a part's files, if nothing was written to them since its report was, or
    since the part was last found to be as its report has it: both change the report last."""
    try:
        states = {name: file_hash.of(path) for name, path in work.files.hashed.items()}
        vouched = file_hash.of(work.files.report).changed
    except OSError:  # pruned meanwhile
        return
    for name, path in work.files.hashed.items():
        if states[name].changed <= vouched:
            hashes.keep(path, getattr(report, name), states[name])
