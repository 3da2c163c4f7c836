"""Last phase: a judged build takes its place in one step, or the old one stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.build import refusal, run_record
from pipeline.build.assembly import Assembled, assemble, require_rows
from pipeline.build.parallel import Report
from pipeline.build.parts import MadeParts, require_complete
from pipeline.build.preparation import Prepared
from pipeline.build_dir.build import Build
from pipeline.build_dir.built import Built
from pipeline.build_dir.drift import drift
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json, sealed
from pipeline.manifest.records import RUN
from pipeline.publish import failed, publish
from pipeline.verdict.judge import Judge
from stages.errors import DataError


def finish(prepared: Prepared, made: MadeParts, report: Report) -> Built:
    """Assemble, judge and publish a build whose parts are made, by whichever processes.

    Both phases run here, under the lock of the output: nobody else may write to it in between.

    Raises:
        UsageError: the output is not ours to replace, or parts are missing.
        PipelineError: see ``assemble``; the old build, if any, is untouched.
    """
    target = publish.check_target(prepared.config.run.output)
    require_complete(prepared, made)
    with Judge(prepared.config) as judge, publish.staging(target) as folder:
        judge.prepare()
        return finish_in(folder, target, prepared=prepared, made=made, judge=judge, report=report)


def finish_in(
    folder: Path,
    target: Path,
    prepared: Prepared,
    made: MadeParts,
    *,
    judge: Judge,
    report: Report,
) -> Built:
    """The same in a staging directory that is there already.

    Raises:
        DataError: the build is refused; why stays in ``DIR.failed``.
    """
    try:
        require_rows(prepared, made)
        assembled = assemble(prepared, made, folder, judge=judge, report=report)
    except DataError as error:
        raise refusal.kept(error, prepared.config, folder) from error
    return _publish(prepared, made, assembled=assembled, target=target)


def _publish(prepared: Prepared, made: MadeParts, assembled: Assembled, target: Path) -> Built:
    """Write ``run.json`` and the manifest, which makes the folder a build, and put it in place."""
    folder, config = assembled.build.folder, prepared.config
    changed = drift(target, assembled.build)
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
    publish.publish(folder, target)
    failed.clear(config.run.output)
    there = Build(config.run.output, written)
    return Built(there, fresh=True, drift=changed, left_out=prepared.left_out)
