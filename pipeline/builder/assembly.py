"""Fifth phase: a whole build in a staging directory, judged by what is read back of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from expectations.audits import require
from expectations.verdict import Verdict
from pipeline.builder import (
    contaminated,
    data_docs,
    description,
    exporting,
    gate,
    near_duplicates,
    planning,
    rejects,
)
from pipeline.builder.audits import audit, in_lines
from pipeline.builder.description import Outcome
from pipeline.builder.gate import Evidence
from pipeline.builder.judge import Judge
from pipeline.builder.parts import MadeParts
from pipeline.builder.planning import Planned, lines_of_part
from pipeline.builder.preparation import Prepared
from pipeline.builder.reject_limit import refuse_too_many
from pipeline.builder.rejects import Ledger
from pipeline.builder.shards import write_dataset, write_index, write_shards
from pipeline.builds.build import Build
from pipeline.builds.files import hash_files
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json
from pipeline.manifest.records import REJECTS, VALIDATION
from pipeline.messages.progress import CHECK, PLAN, REPORT, Report
from pipeline.report import card
from pipeline.report import page as report_page
from pipeline.shards import filters
from pipeline.shards.gather import ShardReport
from pipeline.shards.measured import METRICS
from stages.errors import DataError
from stages.files import file_state
from stages.files.file_state import FileState
from stages.findings import AuditResult


@dataclass(frozen=True, slots=True)
class Assembled:
    """A build in its staging directory. It can be pickled.

    Attributes:
        build: all of it but ``run.json`` and the manifest's file.
        verdict: that it passed.
        seen: the states of the shards that nobody has written to since they were hashed, by path.
    """

    build: Build
    verdict: Verdict
    seen: Mapping[str, FileState]


def require_rows(prepared: Prepared, made: MadeParts) -> None:
    """Some row was read.

    Raises:
        DataError: there is none in any input.
    """
    if not sum(report.rows for report in made.reports.values()):
        raise DataError(f"{prepared.inputs[0].path} has no rows.", "Give a file with rows.")


def assemble(
    prepared: Prepared, made: MadeParts, folder: Path, *, judge: Judge, report: Report
) -> Assembled:
    """Everything of a build but ``run.json`` and the manifest's file.

    Args:
        made: the parts of all splits.
        folder: an empty directory.
        judge: of this build.

    Raises:
        DataError: too many rows are refused, what was written breaks a critical expectation, or an
            audit fails.
        GateError: something could not be judged.
    """
    report(PLAN, 0, 1)
    planned = planning.plan(prepared, made, report, folder)
    prepared = prepared.encoded_by(planned.backend)
    ledger = rejects.write(folder / REJECTS, planned.works, planned.sources, lines_of_part)
    _refuse_too_many(prepared, planned, ledger)
    report(PLAN, 1, 1)
    shards = write_shards(prepared, planned, folder, report)
    write_dataset(folder, prepared, shards)
    outcome = _outcome(prepared, planned, folder, shards, ledger)
    shutil.rmtree(folder / planning.STAGED, ignore_errors=True)
    report(CHECK, 0, 1)
    verdict, audits = _checked(outcome, folder, judge)
    report(CHECK, 1, 1)
    report(REPORT, 0, 1)
    build = _completed(outcome, folder, verdict, audits)
    report(REPORT, 1, 1)
    return Assembled(build, verdict, _unwritten(folder, shards))


def _unwritten(folder: Path, shards: Sequence[ShardReport]) -> dict[str, FileState]:
    """The states of the shards that nobody has written to since they were hashed."""
    found = {shard.path: shard.measured.state for shard in shards}
    return {path: state for path, state in found.items() if file_state.of(folder / path) == state}


def _refuse_too_many(prepared: Prepared, planned: Planned, ledger: Ledger) -> None:
    rows: Counter[int] = Counter()
    for work, report in zip(planned.works, planned.reports, strict=True):
        rows[work.source] += report.rows - report.filtered
    kept = planned.outline.counts.kept
    if planned.filtered is not None and planned.filtered.by.any() and not kept:
        raise filters.nothing_left(planned.filtered)
    refuse_too_many(ledger, rows=rows, left=kept, config=prepared.config)


def _outcome(
    prepared: Prepared, planned: Planned, folder: Path, shards: list[ShardReport], ledger: Ledger
) -> Outcome:
    """What came of it, after what was left out for being like something else was written down."""
    by_input = prepared.of_inputs([report.rows for report in planned.reports])
    recipe, chosen, sources = prepared.recipe, planned.chosen, planned.sources
    return Outcome(
        recipe=recipe,
        inputs=list(prepared.inputs),
        parts=planned.reports,
        rows_of_input=[sum(rows) for rows in by_input],
        outline=planned.outline,
        chosen=chosen,
        shards=shards,
        ledger=ledger,
        filtered=planned.filtered,
        decontamination=contaminated.write(folder, recipe.config, chosen, sources),
        near_duplicates=near_duplicates.write(folder, recipe, chosen, sources),
        indexes=write_index(prepared, planned, folder, shards),
    )


def _checked(outcome: Outcome, folder: Path, judge: Judge) -> tuple[Verdict, list[AuditResult]]:
    """The verdict on what lies in the staging directory, and the audits of it, made meanwhile.

    Raises:
        ExpectationError: a critical expectation is broken, or an audit fails.
        GateError: something could not be judged.
    """
    verdict = _judge(outcome, folder, judge)
    try:
        audits = audit(folder, outcome)
        report_page.prepare()
    except Exception:
        verdict()  # of shards that break a law it says more
        raise
    judged = verdict()
    require(audits)
    return judged, audits


def _judge(outcome: Outcome, folder: Path, judge: Judge) -> Callable[[], Verdict]:
    """Let what lies in the staging directory be judged.

    Returns:
        What waits for the verdict, writes it down and gives it. It raises ``ExpectationError``
        where a critical expectation is broken, and ``GateError`` where something could not be
        judged.
    """
    evidence = Evidence(
        folder=folder,
        indexes=outcome.indexes,
        metrics=folder / METRICS,
        shards=[shard.measured for shard in outcome.shards],
        hashes={shard.path: shard.sha256 for shard in outcome.shards},
        declared=description.ledger(outcome),
        tables=judge.wants_tables,
    )
    asked = judge.ask(evidence, outcome.recipe.context)

    def verdict() -> Verdict:
        found = asked()
        shutil.rmtree(folder / METRICS)
        data_docs.offer(outcome.recipe.config.run.data_docs, found)
        write_json(folder / VALIDATION, as_json(found.record()))  # a refused build leaves it, too
        gate.require_passed(found)
        return found

    return verdict


def _completed(
    outcome: Outcome, folder: Path, verdict: Verdict, audits: list[AuditResult]
) -> Build:
    """The report and a trainer's files; then the hash of every file."""
    described = replace(description.describe(outcome, verdict), audits=in_lines(audits))
    report_page.write(Build(folder, described))
    described = exporting.for_trainer(folder, described, outcome.recipe.config.plan.trainer)
    card.write(Build(folder, described))
    known = {shard.path: shard.sha256 for shard in outcome.shards}
    return Build(folder, replace(described, files=hash_files(folder, known)))
