"""Last phase: a judged build takes its place in one step, or the old one stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.build import refusal, run_record, unchanged
from pipeline.build.assembly import Assembled, assemble, require_rows
from pipeline.build.parts import MadeParts, require_complete
from pipeline.build.planning import workspace_of
from pipeline.build.preparation import Prepared
from pipeline.build_dir import limits
from pipeline.build_dir.build import Build
from pipeline.build_dir.built import Built
from pipeline.build_dir.drift import drift
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json, sealed
from pipeline.manifest.records import RUN
from pipeline.messages.progress import PUBLISH, Report
from pipeline.publish import failed, publish, standing
from pipeline.publish.place import Place
from pipeline.publish.places import place_of
from pipeline.shards import workspace
from pipeline.verdict.judge import Judge
from stages.errors import DataError


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
        judge.prepare()
        built, assembled = finish_in(
            folder, place, prepared=prepared, made=made, judge=judge, report=report
        )
    remember(prepared, made, assembled)
    return built


def remember(prepared: Prepared, made: MadeParts, assembled: Assembled) -> None:
    """Keep the hashes of a build that has just been published, for the next; its workspace goes."""
    unchanged.keep(prepared, made, assembled)
    workspace.remove(workspace_of(prepared))


def finish_in(
    folder: Path,
    place: Place,
    prepared: Prepared,
    made: MadeParts,
    *,
    judge: Judge,
    report: Report,
) -> tuple[Built, Assembled]:
    """The same in a staging directory that is there already.

    Returns:
        The build in its place, and what was assembled, of which ``unchanged`` keeps hashes when
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
        raise refusal.kept(error, prepared.config, folder) from error
    report(PUBLISH, 0, 1)
    built = _publish(prepared, made, assembled=assembled, place=place)
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
        limits.require_same_kind(
            before.manifest, prepared.config.task, model, shown=place.shown_before
        )


def _publish(prepared: Prepared, made: MadeParts, assembled: Assembled, place: Place) -> Built:
    """Write ``run.json`` and the manifest, which makes the folder a build, and put it in place."""
    folder, config = assembled.build.folder, prepared.config
    changed = drift(place.before, assembled.build)
    record = run_record.describe(
        prepared.recipe,
        prepared.inputs,
        list(made.reports.values()),
        started=prepared.started,
        workers=config.run.processes,
    )
    names = tuple(Path(path).name for path in prepared.left_out)
    record = replace(record, drift=changed, files_left_out=names)
    write_json(folder / RUN, as_json(sealed(record)))
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
    standing.publishing(built, place.moment(folder, written.build_id))
    removed, notes = place.publish(folder, written.build_id)
    built = standing.publishing(replace(built, removed=removed, notes=notes))
    failed.clear(config.run.place)
    return built
