"""A finished build looked at as if by a stranger: its files, its manifest, its tokenizer, its rows.

Nothing of the build is believed because the build says so: files are hashed, figures are counted
again from the shards, the gate judges them once more, ``datasets`` opens them, and a sample of rows
is made again from the source where that is still there. Of an export the same is true, but for the
last: its rows are judged as they read in our columns.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from expectations.contract import STORED, Context
from expectations.readback.stored_rows import Sources
from pipeline import build_files, exporting, gate, remake
from pipeline.checked import Checked
from pipeline.config import LISTS, Config
from pipeline.gate import Evidence
from pipeline.measured import METRICS, Measured, measure
from pipeline.publish import MANIFEST, VALIDATION
from stages import formats
from stages.errors import GateError, PipelineError, UsageError
from stages.profile import ModelProfile, PairFraming, StepTokens, TargetModel, declare

_DECLARED = (
    "rows_in rows_accounted examples_made examples_accounted examples_kept tokens_kept "
    "trained_kept duplicates_declared"
).split()
_TOKENS = ("eos", "end_of_turn", "pad", "step", "good", "bad")


def stored_model(folder: Path, manifest: dict[str, Any]) -> TargetModel:
    """The model as the build's own tokenizer and manifest have it."""
    said = manifest["model"]
    config = json.loads((folder / "tokenizer" / "tokenizer_config.json").read_bytes())
    steps = StepTokens()
    if said["step_token"] is not None:
        steps = StepTokens(said["step_token"], said["good_token"], said["bad_token"])
    pair = _pair(said["pair"]) if said["pair"] else None
    profile = ModelProfile(
        name=said["name"],
        model_ids=(),
        chat_template=config["chat_template"],
        end_of_turn=said["end_of_turn"],
        eos_token=said["eos_token"],
        pad_token=said["pad_token"],
        generation_eos=() if pair else (said["end_of_turn"],),
        vocab_size=said["vocab_size"],
        embedding_size=said["embedding_size"],
        context_length=config["model_max_length"],
        is_base=said["is_base"],
        padding_side=said["padding_side"],
        bos_policy=said["bos_policy"],
        bos_token=config.get("bos_token"),
        step_tokens=steps,
        unk_token=config.get("unk_token"),
        pair=pair,
    )
    data = (folder / "tokenizer" / "tokenizer.json").read_bytes()
    return declare(profile, data, with_steps=said["step_token"] is not None)


def _pair(said: dict[str, Any]) -> PairFraming:
    return PairFraming(
        tuple(said["before"]),
        tuple(said["between"]),
        tuple(said["after"]),
        said["token_types"],
        said["position_offset"],
    )


def _tokens_differ(model: TargetModel, said: dict[str, Any]) -> Iterator[str]:
    for name in _TOKENS:
        key = f"{name}_id" if name == "end_of_turn" else f"{name}_token_id"
        index = getattr(model, f"{name}_id")
        if said[key] is not None and said[key] != index:
            yield f"{key} is {said[key]} in the manifest and {index} in the tokenizer"


def _bound(folder: Path, manifest: dict[str, Any], found: Checked) -> TargetModel | None:
    try:
        model = stored_model(folder, manifest)
    except Exception as error:  # whatever the tokenizer library makes of a damaged file
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        found.add("tokenizer/tokenizer.json", "tokenizer", f"it cannot be read: {what}")
        return None
    said = manifest["model"]
    for problem in _tokens_differ(model, said):
        found.add("tokenizer/tokenizer.json", "tokenizer", problem)
    for key, hashed in build_files.model_hashes(model).items():
        if said[key] != hashed:
            found.add("tokenizer/", "tokenizer", f"its {key} is {hashed}, not {said[key]}")
    return model


def _context(manifest: dict[str, Any], model: TargetModel) -> Context:
    width = str(manifest["options"]["pad_to"])
    longest = manifest["max_length"]
    if manifest["layout"] == "padded" and width.isdigit():
        longest = min(longest, int(width))
    return Context(manifest["task"], manifest["layout"], longest, model, STORED)


def _sources(manifest: dict[str, Any]) -> Sources:
    inputs = manifest["inputs"]
    first = (formats.rates_to_first_error(source["format"]) for source in inputs)
    return Sources(tuple(source["path"] for source in inputs), tuple(first))


def _measured(
    folder: Path, metrics: Path, manifest: dict[str, Any], context: Context, found: Checked
) -> list[Measured]:
    made = []
    for split, side in manifest["splits"].items():
        for said in side["shards"]:
            path = folder / said["path"]
            if not path.is_file():
                continue  # told as a missing file
            one = measure(path, said["path"], split, metrics, context, _sources(manifest), None)
            one.counts["n_rows_planned"] = said["rows"]
            if one.rows and one.counts["n_tokens"] != said["tokens"]:
                text = f"it holds {one.counts['n_tokens']} tokens, not {said['tokens']}"
                found.add(said["path"], "tokens", text)
            made.append(one)
    return made


def _judge(
    folder: Path, metrics: Path, manifest: dict[str, Any], model: TargetModel, found: Checked
) -> list[Measured]:
    """The gate once more, over the shards as they lie there."""
    context = _context(manifest, model)
    try:
        shards = _measured(folder, metrics, manifest, context, found)
        said = json.loads((folder / VALIDATION).read_bytes())["dataset"]
        declared = {name: said[name] for name in _DECLARED}
        listed = [shard for side in manifest["splits"].values() for shard in side["shards"]]
        hashes = {shard["path"]: shard["sha256"] for shard in listed}
        if not shards:
            return []
        verdict = gate.judge(Evidence(folder, metrics, shards, hashes, declared), context, [])
    except (GateError, OSError, ValueError, KeyError, TypeError) as error:
        found.add(VALIDATION, "unjudged", f"the shards cannot be judged: {error}")
        return []
    found.verdict = verdict
    for finding in verdict.findings:
        if finding.fatal:
            places = finding.places or ({"row": "the dataset", "shard": ""},)
            for place in places:
                where = " ".join(str(v) for k, v in place.items() if k != "at" and v)
                found.add(where, finding.name, f"{finding.why} ({gate.line(finding).strip()})")
    return shards


def check(folder: Path, cache_dir: Path) -> Checked:
    """Look at a finished build.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.", "Give the directory of a build.")
    found = Checked()
    manifest = build_files.read_manifest(folder, found)
    if manifest is None:
        return found
    build_files.check_files(folder, manifest, found)
    build_files.check_figures(manifest, found)
    model = _bound(folder, manifest, found)
    if model is None:
        return found
    with tempfile.TemporaryDirectory() as name:
        if manifest.get("export"):
            _check_export(folder, Path(name), manifest, model, found)
            return found
        build_files.check_record(folder, found)
        shards = _judge(folder, Path(name), manifest, model, found)
        build_files.open_with_datasets(folder, manifest, found)
        if not found.faults:
            _make_again(folder, Path(name), manifest, shards, cache_dir, found)
    return found


def _check_export(
    folder: Path, work: Path, manifest: dict[str, Any], model: TargetModel, found: Checked
) -> None:
    """An export's rows, brought back to our columns and judged as a build's are."""
    ours, metrics = work / "ours", work / METRICS
    metrics.mkdir()
    if not (folder / VALIDATION).is_file():
        found.add(VALIDATION, "unjudged", "it is missing, and says what its rows were judged by")
        return
    try:
        splits = exporting.bring_back(exporting.Stored(folder, manifest), ours)
    except Exception as error:  # whatever damaged files make of their readers
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        found.add(MANIFEST, "unjudged", f"the rows cannot be read in our columns: {what}")
        return
    found.notes.append("This is an export: none of its rows is made again from the source.")
    shutil.copyfile(folder / VALIDATION, ours / VALIDATION)
    _judge(ours, metrics, manifest | {"splits": splits}, model, found)
    if (folder / "dataset_dict.json").is_file():
        build_files.open_with_datasets(folder, manifest, found)


def _make_again(
    folder: Path,
    metrics: Path,
    manifest: dict[str, Any],
    shards: list[Measured],
    cache_dir: Path,
    found: Checked,
) -> None:
    """A sample of rows from the source, where it is still there and still the same."""
    record = json.loads((folder / "run.json").read_bytes())
    known = Config.__dataclass_fields__
    options = {k: v for k, v in manifest["options"].items() if k in known and k != "expectations"}
    options |= {name: tuple(options.get(name, ())) for name in LISTS}
    gone = [path for path in record["inputs"] if not Path(path).exists()]  # an address of a server
    if gone:
        found.notes.append(f"No row was made again from the source: {gone[0]} is not here.")
        return
    try:
        config = Config(
            data=tuple(record["inputs"]),
            model=record["model"],
            output=folder,
            cache_dir=cache_dir,
            **options,
        )
        result = remake.remake(config, manifest, metrics, shards)
    except (PipelineError, OSError, KeyError, TypeError) as error:
        found.notes.append(f"No row was made again from the source: {error}")
        return
    found.rows_made_again = result.rows
    for where, detail in result.differ:
        found.add(where, "made_again", detail)
