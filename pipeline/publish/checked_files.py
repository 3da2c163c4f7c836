"""Compares the files of a finished build with its manifest, and the manifest with itself."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from expectations.stored_rows import halves
from expectations.witness.attest import Statement
from pipeline.builder import witnessed
from pipeline.builds import stored, stored_model
from pipeline.builds.build import Build, read_manifest
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import Input, scan
from pipeline.manifest import dataset_files, json_records
from pipeline.manifest.counts import sums
from pipeline.manifest.manifest import MANIFEST, InputRecord, Manifest, id_of_manifest
from pipeline.manifest.records import RUN
from pipeline.options.config import Config
from pipeline.shards import collect, filters, part
from pipeline.shards.measured import Measured, identities
from stages import contract, findings, readers
from stages.errors import DataError, PipelineError, SurroundingsError, UsageError, require_reading
from stages.files import file_hash
from stages.rows import carried


def open_build(folder: Path, result: Checked) -> Build | None:
    """The build in a folder; None, and a fault, if its manifest is missing or cannot be read.

    A manifest whose content does not match its seal is a fault too, but is opened if possible.

    Raises:
        UsageError: a newer version wrote it, as its seal confirms.
    """
    path = folder / MANIFEST
    if not path.is_file():
        result.add(MANIFEST, "missing", "the file does not exist, so this is not a build")
        return None
    data = path.read_bytes()
    problem = json_records.problem(data)
    if problem is not None:
        result.add(MANIFEST, "manifest", problem)
    try:
        return Build(folder, read_manifest(data))
    except json_records.MalformedError as error:
        result.add(MANIFEST, "manifest", str(error))
    except UsageError:
        if problem is None:
            raise
    return None


def check_files(build: Build, result: Checked) -> None:
    """Every file of the manifest exists with the hash given there, and there is no other file but
    what programs leave in any folder, which is a note."""
    for file in build.differences():
        if file.code == stored.UNKNOWN and dataset_files.is_one(file.name):
            result.notes.append(
                f"{file.name} was left by another program; it is not part of the build"
            )
        else:
            result.add(file.name, file.code, file.detail)


def check_figures(manifest: Manifest, result: Checked) -> None:
    """The manifest is consistent: its totals, the hashes of its shards, its build id."""
    for what, said, real in sums(manifest):
        if said != real:
            result.add(MANIFEST, "figures", f"{what}: the manifest says {said}, the sum is {real}")
    for shard in manifest.shards:
        if manifest.files.get(shard.path) != shard.sha256:
            result.add(MANIFEST, "figures", f"{shard.path} has two hashes")
    for one in manifest.packs.values():
        if manifest.files.get(one.path) != one.sha256:
            result.add(MANIFEST, "figures", f"{one.path} has two hashes")
    if id_of_manifest(manifest) != manifest.build_id:
        result.add(MANIFEST, "figures", "build_id does not match its recipe and inputs")


def check_record(folder: Path, result: Checked) -> None:
    """``run.json`` exists and matches its seal."""
    record = folder / RUN
    problem = json_records.problem(record.read_bytes()) if record.is_file() else "it is missing"
    if problem is not None:
        result.add(RUN, "run_record", problem)


def check_copies(build: Build, result: Checked) -> None:
    """Where a trainer reads no Arrow, ``datasets`` finds the same rows as that trainer."""
    for shard in build.manifest.shards:
        name = stored.arrow_of(shard.path)
        if name != shard.path and name in build.manifest.files:
            try:
                pair = [stored.read_file(build.folder / one) for one in (name, shard.path)]
                alike = pair[0].to_pylist() == pair[1].to_pylist()
            except (OSError, ValueError, pa.ArrowException) as error:
                require_reading(error)
                result.add(name, "datasets", f"it cannot be read: {error}")
                continue
            if not alike:
                result.add(name, "datasets", f"its rows are not those of {shard.path}")


def open_with_datasets(build: Build, result: Checked) -> None:
    """``load_from_disk`` opens every split, with as many rows as the manifest says."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    try:
        for name in build.manifest.files:  # or it waits for who writes into a pipe
            file_hash.required(build.folder / name)
        loaded = datasets.load_from_disk(str(build.folder))
        counts = {name: len(rows) for name, rows in loaded.items()}
        for rows in loaded.values():
            _ = rows[0]  # decodes a row: a schema that does not fit shows only then
    except Exception as error:  # whatever another library makes of damaged files
        require_reading(error)
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        result.add("dataset_dict.json", "datasets", f"load_from_disk fails: {what}")
        return
    recorded = {name: side.rows for name, side in build.manifest.splits.items()}
    if counts != recorded:
        result.add("dataset_dict.json", "datasets", f"datasets finds {counts} rows, not {recorded}")


# The result of ``pipeline check``: faults, each with its place, and what could not be checked.


class Fault(NamedTuple):
    """One difference from what was built: the place, a stable code, and a sentence."""

    where: str
    code: str
    detail: str


@dataclass
class Checked:
    """The result of a check.

    Attributes:
        notes: what could not be checked, and why.
        expectations: by which the build was judged; ``verdict`` is about those of them that can
            be judged from the finished build alone.
        rows_made_again: examples that were rebuilt from the source.
        witnessed: rows that the witness has compared with the source.
    """

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: findings.Validation | None = None
    rows_made_again: int = 0
    witnessed: int = 0
    expectations: int = 0

    def add(self, where: str, code: str, detail: str) -> None:
        """One more fault."""
        self.faults.append(Fault(where, code, detail))

    @property
    def status(self) -> int:
        """Of the command: 1 where every file is as it was written, and something that was written
        is wrong, which is a bug of this program."""
        ours = {"side_file", "export", "made_again", "witness"}
        ours |= {one.name for one in (self.verdict.expectations if self.verdict else ())}
        if not self.faults:
            return 0
        own = all(fault.code in ours for fault in self.faults)
        return PipelineError.exit_code if own else DataError.exit_code

    def described(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        names = ("passed", "judged", "failed")
        judged = {name: getattr(self.verdict, name) for name in names} if self.verdict else None
        return {
            "passed": not self.faults,
            "faults": [{"where": f.where, "code": f.code, "detail": f.detail} for f in self.faults],
            "notes": self.notes,
            "validation": judged,
            "expectations": self.expectations,
            "rows_made_again": self.rows_made_again,
            "witnessed": self.witnessed,
        }


# A sample of a finished build's rows, made again from the source by the reference encoder.


ROWS = 64  # of each input, from its first split


@dataclass
class Remade:
    """How many rows were made again, which of their examples are not the stored ones, and what the
    witness has found in the stored ones."""

    rows: int = 0
    differ: list[tuple[str, str]] = field(default_factory=list)
    heard: Statement = field(default_factory=Statement)


def _same_source(inputs: list[Input], said: Sequence[InputRecord]) -> None:
    for source, known in zip(inputs, said, strict=False):
        if (source.name, source.sha256) != (known.path, known.sha256):
            raise SurroundingsError(f"{source.path} is not the file that the build was made from.")
    if len(inputs) != len(said):
        raise SurroundingsError("The inputs are not those of the build.")


def _records(source: Input) -> list[contract.Record]:
    """Rows spread evenly over the input's first split; an empty file has none."""
    if not source.splits:
        return []
    split = source.splits[0]
    every = [r for lines in readers.load(split.reader).read(split) for r in lines.records]
    chosen = np.linspace(0, len(every) - 1, min(ROWS, len(every))).astype(int)
    return [every[i] for i in np.unique(chosen)]


def _made(recipe: Recipe, source: Input, format_name: str) -> tuple[list[str], contract.Batch]:
    """Examples of those rows, and what they are called; refused rows are left out.

    All of them pass what a build's own rows pass.
    """
    recipe = recipe.of_source(source.source)
    machinery = (recipe.normalize(format_name), recipe.stages(format_name), recipe.sample())
    records = _records(source)
    lines = contract.Lines(records, len(records))
    _, batch, _ = part.examples_of(machinery, lines, lambda line: f"{source.name}:{line + 1}")
    return collect.row_ids_of(collect.PartSource("", source.name, 0), batch).to_pylist(), batch


def _stored(metrics: Path, shards: list[Measured]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The key of every stored example, by input, line and sequence."""
    every = np.concatenate([identities(metrics, shard) for shard in shards], axis=1)
    return {tuple(one[:3]): tuple(one[3:]) for one in every.T.tolist()}


def _heard(recipe: Recipe, inputs: list[Input], said: Manifest) -> Statement:
    """What the witness says of the stored rows."""
    config = recipe.config
    splits = [[split.lines or 0 for split in one.splits] for one in inputs]
    known = zip(splits, said.inputs, strict=True)
    lines = [own if all(own) else [one.rows] for own, one in known]
    shards, how = [shard.path for shard in said.shards], config.judge.witness
    where, noted = config.run.output, {carried.MARKED: 0, **said.rows.notes}
    noted |= witnessed.left_out(said.filters)
    counts = said.encoder.merged_cuts, noted, said.tokens.truncated
    case = witnessed.case_of(recipe, inputs, lines, where, shards, how, counts)
    if said.rows.contaminated + said.rows.near_duplicates:
        case |= {"whole": False, "keep": ""}  # no manifest says how rows are compared
    # The model's files may have changed since.
    return witnessed.hear({**case, "origin": {}})


def remake(
    config: Config,
    said: Manifest,
    metrics: Path,
    shards: list[Measured],
    left_out: Container[str] = (),
) -> Remade:
    """Make a sample again and compare ids, labels, ratings and weights by their keys.

    Args:
        said: the build's manifest.
        left_out: ids of examples that the build lists as left out.

    Raises:
        ParityError: the reference gives other ids.
        PipelineError: the source is gone or changed, or the model cannot be found here.
    """
    inputs = scan(config)
    _same_source(inputs, said.inputs)
    recipe = replace(resolve_recipe(config, inputs), backend="tokenizers")
    model = stored_model.model_of(recipe.model)
    for key in ("tokenizer_sha256", "chat_template_sha256"):
        if getattr(model, key) != getattr(said.model, key):
            raise SurroundingsError(f"The model found here has another {key}.")
    stored = _stored(metrics, shards)
    # Of equal examples only the first is stored, so under --dedup another may stand for this one.
    known = set(stored.values()) if config.plan.dedup else set()
    # Filters are tried again, and what is like evaluations and other rows is listed. Which examples
    # a budget left out, or a named test file, is written nowhere: those are not looked for.
    unlisted = said.examples.left_out > 0 or any(one.test for one in config.sources)
    remade = Remade(heard=_heard(recipe, inputs, said))
    for ordinal, (source, name) in enumerate(zip(inputs, recipe.formats, strict=True)):
        names, batch = _made(recipe, source, name)
        filtered, _ = filters.of_rows(config.only(source.source), batch, "line {}".format)
        remade.rows += batch.num_rows
        columns = (batch.column(n).to_pylist() for n in ("line", "sequence"))
        keys = zip(*(half.tolist() for half in halves(batch.column("digest"))), strict=True)
        for row, line, sequence, made, out in zip(names, *columns, keys, filtered, strict=True):
            there = stored.get((ordinal, line + 1, sequence))
            gone = out or row in left_out
            if gone and there is not None:
                remade.differ.append((row, "it should be left out, but a shard has it"))
            elif there is None and not (gone or unlisted or made in known):
                remade.differ.append((row, "the source has it, but no shard does"))
            elif there is not None and there != made:
                remade.differ.append((row, "rebuilt from the source, it is a different example"))
    return remade
