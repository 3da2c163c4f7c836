"""The spine: inputs to parts, parts to a plan, the plan to shards, shards to a published build.

Everything is made in a staging directory under the output's lock. The manifest is written last,
and only after every shard, read back from the disk, has passed every critical invariant.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.audits import require
from expectations.gx import library
from expectations.gx.suites import Suite
from expectations.readback.stored_rows import Sources
from expectations.verdict import Verdict
from pipeline import (
    data_docs,
    exporting,
    failed,
    gate,
    gather,
    inference,
    manifest,
    margins,
    part,
    preflight,
    publish,
    rejects,
    run_record,
)
from pipeline import plan as planning
from pipeline import report as report_page
from pipeline.audits import audit, in_lines
from pipeline.build_dir.build import Build
from pipeline.build_dir.files import hash_files
from pipeline.build_dir.json_records import as_json, sealed
from pipeline.build_dir.manifest import MANIFEST
from pipeline.build_dir.records import REJECTS, RUN, SERVING, VALIDATION, Change
from pipeline.config import Config
from pipeline.dataset_files import write_json, write_split, write_splits
from pipeline.drift import drift
from pipeline.gate import Evidence
from pipeline.gather import Gather, Shard, ShardReport, Source
from pipeline.inputs import Input, scan
from pipeline.manifest import Outcome
from pipeline.measured import METRICS, read
from pipeline.part import PartReport, Work
from pipeline.recipe import Recipe, resolve_recipe
from pipeline.refusals import refuse_too_many
from pipeline.seal import problem
from pipeline.sources import local
from pipeline.tokenizer_files import write_tokenizer
from stages import catalog, formats, weights
from stages.columns import Ints
from stages.errors import DataError, ParityError, PipelineError

Report = Callable[[str, int, int], None]  # what, done, of how many


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is on disk.

    Attributes:
        fresh: False when an equal build was there already.
        drift: what changed against the build before; None when there was none.
        left_out: files of named folders that no reader is for.
    """

    build: Build
    fresh: bool
    drift: Mapping[str, Change] | None = None
    left_out: tuple[str, ...] = ()


def _workers(config: Config) -> int:
    if config.run.workers:
        return config.run.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(
    function: Any, shared: Any, items: Sequence[Any], config: Config, report: Report, what: str
) -> list[Any]:
    """All results in the order of the items, by the build's engine."""
    pmap = catalog.load("pipeline.executors", config.run.engine, "pmap")
    results: list[Any] = [None] * len(items)
    report(what, 0, len(items))
    for done, (index, result) in enumerate(pmap(function, shared, items, _workers(config)), 1):
        results[index] = result
        report(what, done, len(items))
    return results


def _make_parts(
    recipe: Recipe, inputs: list[Input], report: Report
) -> tuple[Recipe, list[Work], list[PartReport]]:
    """Every split's part; once more with the reference encoder if the fast one was caught out."""
    splits = [
        (split, name)
        for source, name in zip(inputs, recipe.formats, strict=True)
        for split in source.splits
    ]
    for backend in dict.fromkeys((recipe.backend, "tokenizers")):
        recipe = replace(recipe, backend=backend)
        works = part.plan_parts(recipe, splits)
        try:
            return recipe, works, _run(part.make, recipe, works, recipe.config, report, "encode")
        except ParityError as error:
            differ = error
    raise PipelineError(
        f"Token ids differ from Hugging Face tokenizers on a sampled row: {differ}.",
        "Nothing was published; please report it with the row and the model.",
    ) from differ


def _sources(inputs: list[Input], works: list[Work], parts: list[PartReport]) -> list[Source]:
    sources = []
    at = 0
    for source in inputs:
        line = 0
        for _ in source.splits:
            sources.append(Source(str(works[at].path), source.name, line))
            line += parts[at].lines
            at += 1
    return sources


def _shards(plan: planning.Plan) -> list[Shard]:
    shards = []
    for side in plan.sides:
        count = len(side.shards) - 1
        bounds = np.concatenate([[0], np.cumsum(side.sizes)])
        for index in range(count):
            rows = slice(int(side.shards[index]), int(side.shards[index + 1]))
            order = side.order[int(bounds[rows.start]) : int(bounds[rows.stop])]
            name = f"{side.name}/data-{index:05d}-of-{count:05d}.arrow"
            digest = plan.examples.digest[order]
            halves = (digest["a"].view(np.int64), digest["b"].view(np.int64))
            lengths = plan.examples.length[order]
            shards.append(Shard(name, side.name, order, side.sizes[rows], lengths, halves))
    return shards


def _require_rows(parts: list[PartReport], inputs: list[Input]) -> None:
    if not sum(report.rows for report in parts):
        raise DataError(f"{inputs[0].path} has no rows.", "Give a file with rows.")


def _rows_of_inputs(inputs: list[Input], parts: list[PartReport]) -> list[int]:
    counts = []
    at = 0
    for source in inputs:
        counts.append(sum(p.rows for p in parts[at : at + len(source.splits)]))
        at += len(source.splits)
    return counts


def _lines_of_parts(plan: planning.Plan, parts: list[PartReport]) -> list[Ints]:
    base = 0
    found = []
    for index, report in enumerate(parts):
        starts = plan.examples.starts
        found.append(plan.examples.row[starts[index] : starts[index + 1]] - base)
        base += report.lines
    return found


def _write_dataset(folder: Path, recipe: Recipe, shards: list[ShardReport], key: str) -> None:
    sides = list(dict.fromkeys(shard.split for shard in shards))
    for side in sides:
        mine = [shard for shard in shards if shard.split == side]
        schema = _schema(folder, mine)
        write_split(folder, side, schema, [Path(s.path).name for s in mine], key)
    write_splits(folder, sides)
    write_tokenizer(folder / "tokenizer", recipe.model)
    write_json(folder / SERVING, inference.contract(recipe, shards))


def _schema(folder: Path, shards: list[ShardReport]) -> pa.Schema:
    """That of the first shard that opens; the gate tells of those that do not."""
    for shard in shards:
        if shard.measured.counts["opens_pyarrow"]:
            return read(folder / shard.path).schema
    return pa.schema([])


def up_to_date(target: Path, build_id: str) -> Build | None:
    """An equal build that is already there, every byte of it; else None."""
    try:
        found = Build.open(target)
        broken = any(problem((target / name).read_bytes()) for name in (MANIFEST, RUN))
    except (PipelineError, OSError):
        return None
    same = found.manifest.build_id == build_id and not broken
    return found if same and not any(found.differences()) else None


def build(config: Config, report: Report) -> Built:
    """Build, judge and publish.

    Raises:
        PipelineError: see ``stages.errors``; the old build, if any, is untouched.
    """
    started = time.time()
    target = publish.check_target(config.run.output)
    left_out = tuple(local.left_out(config.source.data))
    inputs = scan(config)
    recipe = resolve_recipe(config, inputs)
    key = manifest.build_id(recipe, inputs)
    found = up_to_date(target, key)
    if found is not None and config.run.data_docs is None:
        there = replace(found, folder=config.run.output)
        return Built(there, fresh=False, left_out=left_out)
    preflight.require_hopeful(recipe, inputs)
    if _workers(config) > 1:
        library.warm()
    data_docs.check(config.run.data_docs)
    users = gate.user_suites(config.judge.expectations)
    with publish.staging(target) as folder:
        recipe, works, parts = _make_parts(recipe, inputs, report)
        _require_rows(parts, inputs)
        try:
            staged, verdict = _assemble(recipe, inputs, works, parts, folder, users, report)
        except DataError:
            failed.keep(folder, target)
            raise
        changed = drift(target, staged)
        record = run_record.describe(recipe, inputs, parts, started, _workers(config))
        names = tuple(Path(path).name for path in left_out)
        record = replace(record, drift=changed, files_left_out=names)
        write_json(folder / RUN, as_json(sealed(record)))
        written = publish.write_manifest(folder, staged.manifest, verdict)
        publish.publish(folder, target)
        failed.clear(target)
    return Built(Build(config.run.output, written), fresh=True, drift=changed, left_out=left_out)


def _assemble(
    recipe: Recipe,
    inputs: list[Input],
    works: list[Work],
    parts: list[PartReport],
    folder: Path,
    users: list[Suite],
    report: Report,
) -> tuple[Build, Verdict]:
    """All of a build but ``run.json`` and the manifest's file, and the verdict."""
    config = recipe.config
    plan = planning.make_plan(config.plan, planning.read_examples(works, parts))
    sources, lines = _sources(inputs, works, parts), _lines_of_parts(plan, parts)
    rated = margins.of_parts(recipe.task.kind, works, plan)
    ledger = rejects.write(folder / REJECTS, works, sources, lines)
    kept = int(plan.kept.sum())
    refuse_too_many(ledger, sum(p.rows - p.filtered for p in parts), kept, config)
    shared = Gather(
        recipe,
        tuple(sources),
        _named(recipe, inputs),
        plan.examples.starts,
        str(folder),
        plan.width,
        bool(rated and rated.present),
        "loss_weights" in recipe.task.kept and _any_weights(works),
    )
    (folder / METRICS).mkdir()
    shards = _run(gather.make_shard, shared, _shards(plan), config, report, "write")
    _write_dataset(folder, recipe, shards, manifest.build_id(recipe, inputs))
    outcome = Outcome(
        recipe,
        inputs,
        parts,
        _rows_of_inputs(inputs, parts),
        plan,
        shards,
        ledger,
        len(np.unique(plan.examples.row)) - len(np.unique(plan.examples.row[plan.kept])),
        rated,
    )
    report("check", 0, 1)
    verdict = _judge(outcome, folder, users)
    report("check", 1, 1)
    return _completed(outcome, folder, verdict), verdict


def _completed(outcome: Outcome, folder: Path, verdict: Verdict) -> Build:
    """Audits, the report and a trainer's files; then the hash of every file.

    Raises:
        ExpectationError: an audit fails.
    """
    described = manifest.describe(outcome, verdict)
    results = audit(folder, outcome, described)
    require(results)
    described = replace(described, audits=in_lines(results))
    report_page.write(Build(folder, described))
    described = exporting.for_trainer(folder, described, outcome.recipe.config.plan.trainer)
    known = {shard.path: shard.sha256 for shard in outcome.shards}
    return Build(folder, replace(described, files=hash_files(folder, known)))


def _named(recipe: Recipe, inputs: list[Input]) -> Sources:
    """What row ids may name, and which of it rates steps up to the first error only."""
    names = tuple(source.name for source in inputs)
    return Sources(names, tuple(formats.rates_to_first_error(name) for name in recipe.formats))


def _judge(outcome: Outcome, folder: Path, users: list[Suite]) -> Verdict:
    """Judge what lies in the staging directory, and write the verdict down.

    Raises:
        ExpectationError: a critical expectation is broken.
        GateError: something could not be judged.
    """
    measured = [shard.measured for shard in outcome.shards]
    hashes = {shard.path: shard.sha256 for shard in outcome.shards}
    evidence = Evidence(folder, folder / METRICS, measured, hashes, manifest.ledger(outcome))
    verdict = gate.judge(evidence, outcome.recipe.context, users)
    shutil.rmtree(folder / METRICS)
    data_docs.offer(outcome.recipe.config.run.data_docs, verdict)
    gate.require_passed(verdict)
    write_json(folder / VALIDATION, verdict.described())
    return verdict


def _any_weights(works: list[Work]) -> bool:
    """Whether some example has a loss weight: the column is stored for all rows or for none."""
    for work in works:
        with pa.memory_map(str(work.path)) as source:
            if weights.any_in(pa.ipc.open_file(source).read_all()):
                return True
    return False
