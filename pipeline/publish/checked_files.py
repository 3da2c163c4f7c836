"""Compares the files of a finished build with its manifest, and the manifest with itself."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pyarrow as pa

from pipeline.builds import leftovers, stored
from pipeline.builds.build import Build, read_manifest
from pipeline.builds.files import UNKNOWN
from pipeline.manifest import build_id, seal
from pipeline.manifest.counts import FATES
from pipeline.manifest.json_records import MalformedError
from pipeline.manifest.manifest import MANIFEST, Manifest
from pipeline.manifest.records import RUN
from pipeline.publish.checked import Checked
from stages.errors import UsageError, require_reading
from stages.files import file_hash, regular
from stages.profile import TargetModel


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
    problem = seal.problem(data)
    if problem is not None:
        result.add(MANIFEST, "manifest", problem)
    try:
        return Build(folder, read_manifest(data))
    except MalformedError as error:
        result.add(MANIFEST, "manifest", str(error))
    except UsageError:
        if problem is None:
            raise
    return None


def check_files(build: Build, result: Checked) -> None:
    """Every file of the manifest exists with the hash given there, and there is no other file but
    what programs leave in any folder, which is a note."""
    for file in build.differences():
        if file.code == UNKNOWN and leftovers.is_one(file.name):
            result.notes.append(f"{file.name} was left by another program; it is not of the build")
        else:
            result.add(file.name, file.code, file.detail)


def _sums(manifest: Manifest) -> list[tuple[str, int, int]]:
    """Each total of the manifest: its name, the number given, and the sum of its parts."""
    rows, examples, tokens = manifest.rows, manifest.examples, manifest.tokens
    sides = manifest.splits.values()
    stored = examples.kept + examples.copies
    if manifest.packs:  # stored once, those included that only another budget would use
        stored = examples.kept + examples.left_out
    sums = [
        ("rows", rows.in_, sum(getattr(rows, fate) for fate in FATES)),
        ("rows of inputs", rows.in_, sum(source.rows for source in manifest.inputs)),
        ("examples", examples.made, examples.accounted),
        ("kept examples", stored, sum(side.examples for side in sides)),
        ("tokens", tokens.total, sum(side.tokens for side in sides)),
    ]
    if manifest.filters:
        left_out = sum(one.examples for one in manifest.filters)
        sums.append(("filtered examples", examples.filtered, left_out))
    if manifest.doubles:
        left_out = sum(one.examples for one in manifest.doubles)
        sums.append(("duplicates of sources", examples.duplicates, left_out))
    if manifest.packs:
        used = sum(one.examples for one in manifest.packs.values())
        sums.append(("examples in packs", examples.kept + examples.copies, used))
    for name, side in manifest.splits.items() if manifest.sources else ():
        parts = [one.splits[name] for one in manifest.sources if name in one.splits]
        given = sum(part.examples for part in parts)
        packed = manifest.packs[name].examples if manifest.packs else side.examples
        sums.append((f"examples of sources in {name}", packed, given))
    for name, side in manifest.splits.items():
        sums.append((f"rows of {name}", side.rows, sum(shard.rows for shard in side.shards)))
        sums.append((f"tokens of {name}", side.tokens, sum(shard.tokens for shard in side.shards)))
    return sums


def check_figures(manifest: Manifest, result: Checked) -> None:
    """The manifest is consistent: its totals, the hashes of its shards, its build id."""
    for what, recorded, counted in _sums(manifest):
        if recorded != counted:
            result.add(
                MANIFEST, "figures", f"{what}: the manifest says {recorded}, the sum is {counted}"
            )
    for shard in manifest.shards:
        if manifest.files.get(shard.path) != shard.sha256:
            result.add(MANIFEST, "figures", f"{shard.path} has two hashes")
    for one in manifest.packs.values():
        if manifest.files.get(one.path) != one.sha256:
            result.add(MANIFEST, "figures", f"{one.path} has two hashes")
    if build_id.of_manifest(manifest) != manifest.build_id:
        result.add(MANIFEST, "figures", "build_id does not match its recipe and inputs")


def check_record(folder: Path, result: Checked) -> None:
    """``run.json`` exists and matches its seal."""
    record = folder / RUN
    problem = seal.problem(record.read_bytes()) if record.is_file() else "it is missing"
    if problem is not None:
        result.add(RUN, "run_record", problem)


def model_hashes(model: TargetModel) -> dict[str, str]:
    """Hashes of the tokenizer's bytes and of its chat template, by their keys in the manifest."""
    template = model.profile.chat_template.encode()
    return {
        "tokenizer_sha256": file_hash.of_content(model.tokenizer_json),
        "chat_template_sha256": hashlib.sha256(template).hexdigest(),
    }


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
            regular.required(build.folder / name)
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
