"""``pipeline check``: a finished build is checked again from its files alone.

No number of the build is trusted: every file is hashed, the manifest's numbers are counted again
from the shards, ``datasets`` opens them, and the three nets of a build are run again by the same
code: the gate judges what is measured of the shards; and of a sample of rows, wider than a build's,
if their source is still there, every one passes the laws, and what comes of it is compared with
what is stored; and the witness is heard. The rows of an export are converted to a build's columns
and judged there, and what its trainer makes of them and of its launch scripts is compared with
them; they are not rebuilt.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from expectations.contract import Context
from expectations.stored_rows import Sources
from pipeline.builder import export_gate, exporting, gate, side_files
from pipeline.builder.evidence import Evidence
from pipeline.builds.build import Build
from pipeline.builds.place import found
from pipeline.builds.stored_model import model_of, stored_model
from pipeline.manifest.manifest import MANIFEST, Manifest
from pipeline.manifest.records import VALIDATION
from pipeline.options.config import Config
from pipeline.publish import checked_files
from pipeline.publish.checked_files import Checked
from pipeline.shards import pack_index
from pipeline.shards.measured import METRICS, Measured, Wanted, measure
from pipeline.shards.pack_index import MeasuredIndex
from pipeline.stores import fetch_all, is_address, open_store
from stages import errors, formats
from stages.profile import TargetModel
from stages.tokenizers import probes
from stages.tokenizers.probes import ProbeSubject

# The other totals are counted again.
_DECLARED = re.compile("rows_in$|_(accounted|made|kept|declared)$|^packed_apart_")
_OF_INDEX = {  # what packed rows have, by what the build says that its index names
    "examples_kept": "indexed_declared",
    "tokens_kept": "indexed_tokens_declared",
    "trained_kept": "indexed_trained_declared",
    "duplicates_declared": "indexed_duplicates_declared",
}
_OURS = errors.PipelineError.exit_code  # a bug of this program
_PROBE = "all_text_survives"  # of the tokenizer alone, whatever the rows are
# What of a model its tokenizer decides.
_OF_TOKENIZER = (
    *("eos_token_id", "end_of_turn_id", "end_of_call_id", "pad_token_id"),
    *("step_token_id", "good_token_id", "bad_token_id"),
    *("tokenizer_sha256", "chat_template_sha256"),
)


def _read_model(build: Build, result: Checked) -> TargetModel | None:
    try:
        model = stored_model(build)
    except Exception as error:  # whatever the tokenizer library makes of a damaged file
        errors.require_reading(error)
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        result.add("tokenizer/tokenizer.json", "tokenizer", f"it cannot be read: {what}")
        return None
    record, found = build.manifest.model, model_of(model)
    for key in _OF_TOKENIZER:
        declared, there = getattr(record, key), getattr(found, key)
        # None: a task without step tokens declares none.
        if declared is not None and declared != there:
            told = f"{key} is {declared} in the manifest and {there} in the tokenizer"
            result.add("tokenizer/", "tokenizer", told)
    verdict = probes.examine(ProbeSubject(model, model.tokenizer_json), (probes.TOKENS,))[_PROBE]
    if verdict.passed is False:
        result.add("tokenizer/tokenizer.json", "tokenizer", verdict.detail)
    return model


def _sources(manifest: Manifest) -> Sources:
    first = (formats.load(source.format).first_error for source in manifest.inputs)
    named = tuple(source.source for source in manifest.inputs if source.source)
    return Sources(tuple(source.path for source in manifest.inputs), tuple(first), named)


def _measured(build: Build, metrics: Path, context: Context, result: Checked) -> list[Measured]:
    shards = []
    wanted = Wanted(metrics, context, _sources(build.manifest))
    for split in build.splits.values():
        for shard in split.shards:
            record = shard.record
            if not (build.folder / record.path).is_file():
                continue  # check_files reports the missing file
            found = measure(shard.path, record.path, split.name, wanted=wanted, plan=None)
            found.counts["n_rows_planned"] = record.rows
            if found.rows and (n := found.counts["n_tokens"]) != record.tokens:
                text = f"it has {errors.counted(n, 'token')}, not {record.tokens}"
                result.add(record.path, "tokens", text)
            shards.append(found)
    return shards


def _measure_indexes(build: Build, context: Context, result: Checked) -> list[MeasuredIndex]:
    """The indexes of packs, read back; none where packs are rows.

    Raises:
        GateError: one cannot be read.
    """
    indexes = []
    for split, record in build.manifest.packs.items():
        lengths = pack_index.lengths_of([shard.path for shard in build.splits[split].shards])
        build.path(record.path)  # fetched from a store, where it lies in one
        index = pack_index.measure(build.here, split, lengths, context, planned=None)
        sums = {"packs": index.tally.rows, **index.tally.sums}
        for name, told in (("packs", "packs"), ("examples", "n_examples"), ("tokens", "n_tokens")):
            if getattr(record, name) != sums[told]:
                text = f"it has {sums[told]} {name}, not {getattr(record, name)}"
                result.add(record.path, "packs", text)
        indexes.append(index)
    return indexes


def _declared_counts(build: Build) -> dict[str, int]:
    """The totals of the whole dataset that ``validation.json`` declares."""
    dataset = build.validation.dataset
    declared = {name: n for name, n in dataset.items() if _DECLARED.search(name)}
    if "indexed_declared" in declared and not build.manifest.packs:  # rows written from an index
        declared |= {name: dataset[source] for name, source in _OF_INDEX.items()}
        copies = dataset["indexed_declared"] - dataset["indexed_once_declared"]
        declared |= {"copies_declared": copies} if copies else {}
    return declared


def _judge(build: Build, metrics: Path, model: TargetModel, result: Checked) -> list[Measured]:
    """Judge the shards again, as the gate of the build did."""
    context = export_gate.context_of(build.manifest, model)
    try:
        shards = _measured(build, metrics, context, result)
        declared = _declared_counts(build)
        hashes = {shard.path: shard.sha256 for shard in build.manifest.shards}
        if not shards:
            return []
        indexes = _measure_indexes(build, context, result)
        evidence = gate.Evidence(
            build.folder, metrics, shards, hashes=hashes, declared=declared, indexes=indexes
        )
        verdict = gate.judge(evidence, context)
    except (errors.GateError, OSError, ValueError, KeyError, TypeError) as error:
        errors.require_reading(error)
        result.add(VALIDATION, "unjudged", f"the shards cannot be checked: {error}")
        return []
    result.verdict = verdict
    for finding in verdict.expectations:
        if finding.fatal:
            places = finding.rows or ({"row": "the dataset", "shard": ""},)
            for place in places:
                # "at", the index in the shard, is in the finding's line already.
                where = " ".join(str(v) for k, v in place.items() if k != "at" and v)
                result.add(where, finding.name, f"{finding.why} ({gate.line(finding).strip()})")
    return shards


def check(folder: Path, cache_dir: Path) -> Checked:
    """Check a finished build.

    Raises:
        UsageError: there is no such folder.
        SurroundingsError: a file may not, or cannot, be read.
    """
    if is_address(folder):
        return _check_in_store(folder, cache_dir)
    if not folder.is_dir():
        raise errors.UsageError(f"There is no folder {folder}.", "Give the directory of a build.")
    result = Checked()
    build = checked_files.open_build(folder, result)
    if build is None:
        return result
    result.expectations = build.manifest.validation.judged
    checked_files.check_files(build, result)
    checked_files.check_figures(build.manifest, result)
    model = _read_model(build, result)
    if model is None:
        return result
    with tempfile.TemporaryDirectory() as name:
        if build.manifest.export:
            _check_export(build, Path(name), model, result)
            return result
        if build.manifest.published is None:  # such a copy leaves run.json out
            checked_files.check_record(folder, result)
        shards = _judge(build, Path(name), model, result)
        _check_beside(build, shards, result)
        checked_files.open_with_datasets(build, result)
        # Rebuilding takes longest and says nothing new about a build that is known to be damaged.
        if not result.faults:
            _rebuild_sample(build, Path(name), shards, cache_dir, result)
    return result


def _check_in_store(folder: Path, cache_dir: Path) -> Checked:
    """Read every object as it is there now, not a copy that was fetched before, and check these.

    Raises:
        UsageError: there is no build.
    """
    where, _ = found(folder)
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="check-", dir=cache_dir) as name:
        return check(fetch_all(open_store(where), Path(name)), cache_dir)


def _check_export(build: Build, work: Path, model: TargetModel, result: Checked) -> None:
    """Convert an export's rows to our columns, and judge them like those of a build."""
    ours, metrics = work / "ours", work / METRICS
    metrics.mkdir()
    if not (build.folder / VALIDATION).is_file():
        result.add(VALIDATION, "unjudged", "it is missing, so the rows cannot be checked")
        return
    try:
        back = exporting.bring_back(build, ours)
    except Exception as error:  # whatever damaged files make of their readers
        errors.require_reading(error)
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        result.add(
            MANIFEST, "unjudged", f"the rows cannot be converted to a build's columns: {what}"
        )
        return
    result.notes.append("This is an export: its rows are not rebuilt from the source.")
    for one in export_gate.problems(build, None):
        result.add(one.row or one.file, "export", f"{one.file}: {one.what}")
    shutil.copyfile(build.folder / VALIDATION, ours / VALIDATION)
    _check_beside(build, _judge(back, metrics, model, result), result)
    if (build.folder / "dataset_dict.json").is_file():
        checked_files.check_copies(build, result)
        checked_files.open_with_datasets(build, result)


def _check_beside(build: Build, shards: list[Measured], result: Checked) -> None:
    """Judge the files beside the shards as a build does, if nothing else of it is damaged."""
    if result.faults or result.verdict is None:
        return
    for name, what in side_files.problems(Evidence(build, shards, result.verdict.dataset)):
        result.add(name, "side_file", what)


def _by_source(manifest: Manifest, paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Where the inputs are, grouped by the source that they belong to."""
    grouped: dict[str | None, list[str]] = {}
    for one, path in zip(manifest.inputs, paths, strict=False):
        grouped.setdefault(one.source, []).append(path)
    return [tuple(group) for group in grouped.values()]


def _rebuild_sample(
    build: Build, metrics: Path, shards: list[Measured], cache_dir: Path, result: Checked
) -> None:
    """Build a sample of rows from the source again and compare it with the stored rows.

    If the source is gone or has changed, that becomes a note, not a fault.
    """
    if build.manifest.published is not None:
        result.notes.append("This is a published copy: its rows are not rebuilt from the source.")
        return
    try:
        inputs = build.run.inputs
        gone = [path for path in inputs if not Path(path).exists()]  # an address of a server
        if gone:
            result.notes.append(f"No row was rebuilt from the source: {gone[0]} is not here.")
            return
        config = Config.of_record(
            build.manifest.options,
            _by_source(build.manifest, inputs),
            model=build.run.model,
            output=build.folder,
            cache_dir=cache_dir,
        )
        left_out = {hit.id for hit in build.contaminated()}
        left_out |= {one.id for one in build.near_duplicates()}
        remade = checked_files.remake(config, build.manifest, metrics, shards, left_out)
    except (errors.ParityError, errors.PipelineError, OSError, KeyError, TypeError) as error:
        # Of a law that does not hold, or other ids, the message begins with the row.
        if isinstance(error, errors.ParityError) or getattr(error, "exit_code", 0) == _OURS:
            result.add(str(error).partition(": ")[0], "made_again", str(error))
        else:
            result.notes.append(f"No row was rebuilt from the source: {error}")
        return
    result.rows_made_again, result.witnessed = remade.rows, remade.heard.read
    for row, what in remade.heard.found:
        result.add(row, "witness", what)
    for where, detail in remade.differ:
        result.add(where, "made_again", detail)
