"""Runs the audits on a staged build: on its shards, read back in chunks, and on its plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from expectations.audits import AuditFacts, BuildCounts, SourceCounts, run_audits
from expectations.chunk import Chunk, chunk_of
from expectations.contract import Context
from pipeline.builder import description
from pipeline.builder.description import Outcome
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import as_json
from pipeline.manifest.manifest import AuditLine
from pipeline.manifest.records import AUDITS
from pipeline.shards import pack_index
from pipeline.shards.measured import read
from pipeline.shards.part import PartReport
from stages.columns import Ints, offsets_of
from stages.findings import AuditResult, Audits

SAMPLE_TOKENS = 1 << 21  # about as many are measured; of a larger build, evenly spaced rows


def _chunks(folder: Path, outcome: Outcome, context: Context, stride: int) -> Iterator[Chunk]:
    """One chunk per shard: every ``stride``-th row, counted over the whole build."""
    seen = 0
    for shard in outcome.shards:
        table = read(folder / shard.path)
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
    of_parts = outcome.outline.counts.of_parts
    each = [of_parts[slice(*bound)].sum(axis=0).tolist() for bound in pairwise(bounds.tolist())]
    names = [source.source_name or source.name for source in outcome.inputs]
    totals = {name: [0, 0, 0] for name in names}
    for name, rows, counts in zip(names, outcome.rows_of_input, each, strict=True):
        totals[name] = [sum(pair) for pair in zip(totals[name], (rows, *counts), strict=True)]
    return tuple(SourceCounts(name, *counts) for name, counts in totals.items())


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
    config = recipe.config
    context = Context(
        kind=recipe.task.kind,
        layout=config.plan.layout,
        max_length=config.plan.longest_example,
        model=recipe.model,
    )
    tokens = description.tokens_of(outcome)
    total = tokens.total + tokens.padding
    stride = -(-total // SAMPLE_TOKENS)
    sample, everything = (partial(_chunks, folder, outcome, context, n) for n in (stride, 1))
    facts = AuditFacts(
        context=context,
        ledger=_ledger(outcome),
        lengths=outcome.outline.counts.histogram(),
        leaked=outcome.outline.counts.leaked,
        everything=everything,
        lost=PartReport.lost_of(outcome.parts),
        sources=_sources(outcome),
    )
    results = run_audits(sample, facts, config.judge.tolerance)
    write_json(folder / AUDITS, as_json(Audits(stride, tuple(results))))
    return results


def in_lines(results: list[AuditResult]) -> dict[str, AuditLine]:
    """The manifest's ``audits``: one line for each."""
    return {r.name: AuditLine(r.status, _sentence(r)) for r in results}


def _sentence(result: AuditResult) -> str:
    worst = result.worst
    return f"{worst.name}: {worst.detail}" if worst is not None else "nothing to report"
