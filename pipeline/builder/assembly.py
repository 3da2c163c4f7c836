"""Fifth phase: a whole build in a staging directory, judged by what is read back of it."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from expectations.audits import AuditFacts, BuildCounts, SourceCounts, require, run_audits
from expectations.contract import Context
from expectations.stored_rows import Chunk, chunk_of
from pipeline.builder import (
    contaminated,
    description,
    evidence,
    exporting,
    gate,
    rejects,
    side_files,
    witnessed,
)
from pipeline.builder.dataset import write_dataset, write_index, write_shards
from pipeline.builder.description import Outcome
from pipeline.builder.judge import Judge
from pipeline.builder.max_reject import refuse_too_many
from pipeline.builder.planning import STAGED, MadeParts, Planned, plan
from pipeline.builder.preparation import Prepared
from pipeline.builder.rejects import Ledger
from pipeline.builds.build import Build
from pipeline.builds.stored import hash_files, read_file
from pipeline.manifest import manifest, records
from pipeline.manifest.counts import WitnessCounts
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json
from pipeline.messages.progress import CHECK, PLAN, REPORT, Report
from pipeline.report import card
from pipeline.report import page as report_page
from pipeline.serving import serving
from pipeline.shards import filters, measured, pack_index, part
from pipeline.shards.chain import Losses, losses_of_part
from pipeline.shards.gather import ShardReport
from stages.columns import Ints, offsets_of
from stages.errors import DataError
from stages.files import file_hash
from stages.findings import AuditResult, Audits, Validation
from stages.rows import carried


class Assembled(NamedTuple):
    """A build in its staging directory. It can be pickled.

    Attributes:
        build: all of it but ``run.json`` and the manifest's file.
        verdict: that it passed.
        seen: the states of the shards that nobody has written to since they were hashed, by path.
    """

    build: Build
    verdict: Validation
    seen: Mapping[str, file_hash.FileState]


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
    planned = plan(prepared, made, report, folder)
    prepared = prepared.encoded_by(planned.backend)
    ledger = rejects.write(folder / records.REJECTS, planned.works, planned.sources)
    _refuse_too_many(prepared, planned, ledger)
    report(PLAN, 1, 1)
    serving.write_tokenizer(folder / records.TOKENIZER, prepared.recipe.model)
    judge.expect(folder / records.TOKENIZER)
    shards = write_shards(prepared, planned, folder, report)
    write_dataset(folder, prepared, shards)
    outcome = _outcome(prepared, planned, folder, shards, ledger)
    shutil.rmtree(folder / STAGED, ignore_errors=True)
    report(CHECK, 0, 1)
    case = _case(prepared, planned, outcome, folder)
    heard = judge.hear(case)
    verdict, audits = _checked(outcome, folder, judge)
    statement = witnessed.unchanged(heard(), prepared.inputs)
    witnessed.require(statement, case)
    report(CHECK, 1, 1)
    report(REPORT, 0, 1)
    build = _completed(outcome, folder, verdict, audits, witnessed.record_of(statement))
    side_files.require(evidence.of(build, outcome, planned, verdict.dataset, case, statement.asked))
    report(REPORT, 1, 1)
    return Assembled(build, verdict, _unwritten(folder, shards))


def _case(
    prepared: Prepared, planned: Planned, outcome: Outcome, folder: Path
) -> Mapping[str, Any]:
    """What the witness is asked of the build in the staging directory."""
    lines = prepared.of_inputs([report.lines or report.rows for report in planned.reports])
    shards = [shard.path for shard in outcome.shards]
    how = prepared.config.judge.witness
    notes = [report.counts.get("note", {}) for report in planned.reports]
    noted = {name: sum(one.get(name, 0) for one in notes) for name in carried.WORDS}
    noted |= witnessed.left_out(description.filters_of(outcome))
    counts = description.merged_cuts_of(outcome), noted, description.tokens_of(outcome).truncated
    return witnessed.case_of(prepared.recipe, prepared.inputs, lines, folder, shards, how, counts)


def _unwritten(folder: Path, shards: Sequence[ShardReport]) -> dict[str, file_hash.FileState]:
    """The states of the shards that nobody has written to since they were hashed."""
    found = {shard.path: shard.measured.state for shard in shards}
    return {path: state for path, state in found.items() if file_hash.of(folder / path) == state}


def _refuse_too_many(prepared: Prepared, planned: Planned, ledger: Ledger) -> None:
    losses: dict[int, Losses] = {}
    for work, report in zip(planned.works, planned.reports, strict=True):
        losses[work.source] = losses.get(work.source, Losses()) + losses_of_part(report.counts)
    kept = planned.outline.counts.kept
    filtered = planned.chosen.filtered if planned.chosen else None
    if filtered is not None and filtered.by.any() and not kept:
        raise filters.nothing_left(filtered)
    refuse_too_many(ledger, losses, left=kept, config=prepared.config)


def _outcome(
    prepared: Prepared, planned: Planned, folder: Path, shards: list[ShardReport], ledger: Ledger
) -> Outcome:
    """What came of it, after what was left out for being like something else was written down."""
    recipe, chosen, sources = prepared.recipe, planned.chosen, planned.sources
    return Outcome(
        recipe=recipe,
        inputs=list(prepared.inputs),
        parts=planned.reports,
        sources=sources,
        outline=planned.outline,
        chosen=chosen,
        shards=shards,
        ledger=ledger,
        decontamination=contaminated.write(folder, recipe.config, chosen, sources),
        near_duplicates=contaminated.write_near(folder, recipe, chosen, sources),
        indexes=write_index(prepared, planned, folder, shards),
    )


def _checked(outcome: Outcome, folder: Path, judge: Judge) -> tuple[Validation, list[AuditResult]]:
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


def _judge(outcome: Outcome, folder: Path, judge: Judge) -> Callable[[], Validation]:
    """Let what lies in the staging directory be judged.

    Returns:
        What waits for the verdict, writes it down and gives it. It raises ``ExpectationError``
        where a critical expectation is broken, and ``GateError`` where something could not be
        judged.
    """
    given = gate.Evidence(
        folder=folder,
        indexes=outcome.indexes,
        metrics=folder / measured.METRICS,
        shards=[shard.measured for shard in outcome.shards],
        hashes={shard.path: shard.sha256 for shard in outcome.shards},
        declared=description.ledger(outcome),
        tables=judge.wants_tables,
    )
    asked = judge.ask(given, outcome.recipe.context)

    def verdict() -> Validation:
        found = asked()
        shutil.rmtree(folder / measured.METRICS)
        write_json(folder / records.VALIDATION, as_json(found))  # a refused build leaves it, too
        gate.require_passed(found)
        return found

    return verdict


def _completed(
    outcome: Outcome,
    folder: Path,
    verdict: Validation,
    audits: list[AuditResult],
    told: WitnessCounts,
) -> Build:
    """The report and a trainer's files; then the hash of every file."""
    described = description.describe(outcome, verdict)
    described = replace(described, audits=in_lines(audits), witness=told)
    report_page.write(Build(folder, described))
    described = exporting.for_trainer(folder, described, outcome.recipe.config.plan.trainer)
    card.write(Build(folder, described))
    known = {shard.path: shard.sha256 for shard in outcome.shards}
    return Build(folder, replace(described, files=hash_files(folder, known)))


# Runs the audits on a staged build: on its shards, read back in chunks, and on its plan.


SAMPLE_TOKENS = 1 << 21  # about as many are measured; of a larger build, evenly spaced rows


def _chunks(folder: Path, outcome: Outcome, context: Context, stride: int) -> Iterator[Chunk]:
    """One chunk per shard: every ``stride``-th row, counted over the whole build."""
    seen = 0
    for shard in outcome.shards:
        table = read_file(folder / shard.path)
        chosen = np.arange((-seen) % stride, shard.rows, stride)  # goes on where it left off
        seen += shard.rows
        if len(chosen):
            table = taken(table, chosen) if stride > 1 else table
            yield chunk_of(table.combine_chunks(), shard.split, context)


def taken(table: pa.Table, rows: Ints) -> pa.Table:
    """Some rows, ascending, taken from each batch: of a table, Arrow copies every batch first, and
    the holes that copies of shards leave in memory grow with the shards."""
    batches = table.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    each = np.split(rows, np.searchsorted(rows, ends[:-1]))
    found = [
        batch.take(pa.array(own - (end - batch.num_rows)))
        for batch, own, end in zip(batches, each, ends.tolist(), strict=True)
        if len(own)
    ]
    return pa.Table.from_batches(found, table.schema)


def _sources(outcome: Outcome) -> tuple[SourceCounts, ...]:
    """Rows, kept examples and their tokens, by source, or by input file where there are none."""
    # Of each input those of its splits: no part has examples of two.
    bounds = offsets_of(np.array([len(source.splits) for source in outcome.inputs]))
    rows = np.array([[report.rows] for report in outcome.parts], np.int64)
    of_parts = np.hstack([rows, outcome.outline.counts.of_parts])
    totals: dict[str, Ints] = {}
    for source, (first, last) in zip(outcome.inputs, pairwise(bounds.tolist()), strict=True):
        name, counts = source.source_name or source.name, of_parts[first:last].sum(axis=0)
        totals[name] = totals.get(name, 0) + counts
    return tuple(SourceCounts(name, *counts.tolist()) for name, counts in totals.items())


def _ledger(outcome: Outcome) -> BuildCounts:
    examples, tokens = description.examples_of(outcome), description.tokens_of(outcome)
    test = description.splits_of(outcome).get("test")
    total = tokens.total
    if outcome.indexes:  # what is trained is of packs, which may name an example several times
        total = pack_index.packs_and_tokens(outcome.indexes)[1]
    return BuildCounts(
        made=examples.made,
        kept=examples.kept,
        removed=examples.duplicates,
        left_after=examples.near_duplicates + examples.left_out,
        equal=examples.duplicates + outcome.outline.counts.equal,
        too_long=examples.rejected_by_code.get("too_long", 0),
        tokens=total,
        trained=tokens.trained,
        truncated=tokens.truncated,
        test=test.examples if test else None,
        max_length=outcome.recipe.config.plan.max_length,
    )


def audit(folder: Path, outcome: Outcome) -> list[AuditResult]:
    """Measure, judge and write ``audits.json``.

    Raises:
        UsageError: a tolerance of the recipe names no audit.
        GateError: an audit could not be computed.
    """
    recipe = outcome.recipe
    context, tokens = recipe.context, description.tokens_of(outcome)
    stride = -(-(tokens.total + tokens.padding) // SAMPLE_TOKENS)
    sample, everything = (partial(_chunks, folder, outcome, context, n) for n in (stride, 1))
    facts = AuditFacts(
        context=context,
        ledger=_ledger(outcome),
        lengths=outcome.outline.counts.histogram(),
        leaked=outcome.outline.counts.leaked,
        everything=everything,
        lost=part.PartReport.lost_of(outcome.parts),
        spelled=description.spelled_of(outcome),
        sources=_sources(outcome),
    )
    results = run_audits(sample, facts, recipe.config.judge.tolerance)
    write_json(folder / records.AUDITS, as_json(Audits(stride, tuple(results))))
    return results


def in_lines(results: list[AuditResult]) -> dict[str, manifest.AuditLine]:
    """The manifest's ``audits``: one line for each."""
    return {r.name: manifest.AuditLine(r.status, _sentence(r)) for r in results}


def _sentence(result: AuditResult) -> str:
    worst = result.worst
    return f"{worst.name}: {worst.detail}" if worst is not None else "nothing to report"
