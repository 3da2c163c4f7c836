"""The files of a finished build beside what its manifest says of them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pipeline import manifest as writing
from pipeline import seal
from pipeline.checked import Checked
from pipeline.publish import MANIFEST
from stages.profile import TargetModel


def read_manifest(folder: Path, found: Checked) -> dict[str, Any] | None:
    """The manifest, if it is one; told as a fault where it is missing or not what was written."""
    path = folder / MANIFEST
    if not path.is_file():
        found.add(MANIFEST, "missing", "there is none, so this is no build")
        return None
    data = path.read_bytes()
    problem = seal.problem(data)
    if problem is not None:
        found.add(MANIFEST, "manifest", problem)
    try:
        made: dict[str, Any] = json.loads(data)
        _ = (made["model"]["name"], made["splits"], made["files"], made["options"]["pad_to"])
    except (ValueError, KeyError, TypeError):
        if problem is None:
            found.add(MANIFEST, "manifest", "it lacks what every manifest has")
        return None
    return made


def check_files(folder: Path, manifest: dict[str, Any], found: Checked) -> None:
    """Every named file is there with its bytes, and no other."""
    said = manifest["files"]
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    for name in sorted(said):
        if name not in there:
            found.add(name, "missing", "the manifest names it, and it is not there")
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != said[name]:
            found.add(name, "hash", f"its bytes are not those of sha256 {said[name]}")
    for name in sorted(there - {*said, MANIFEST, "run.json"}):
        found.add(name, "unknown", "the manifest does not name it")


def _sums(manifest: dict[str, Any]) -> list[tuple[str, int, int]]:
    rows, made, tokens = manifest["rows"], manifest["examples"], manifest["tokens"]
    sides = manifest["splits"].values()
    found = [
        ("rows", rows["in"], sum(rows[name] for name in writing.FATES)),
        ("rows of inputs", rows["in"], sum(i["rows"] for i in manifest["inputs"])),
        ("examples", made["made"], made["kept"] + made["rejected"] + made["duplicates"]),
        ("kept examples", made["kept"], sum(side["examples"] for side in sides)),
        ("tokens", tokens["total"], sum(side["tokens"] for side in sides)),
    ]
    for name, side in manifest["splits"].items():
        for key in ("rows", "tokens"):
            total = sum(shard[key] for shard in side["shards"])
            found.append((f"{key} of {name}", side[key], total))
    return found


def check_figures(manifest: dict[str, Any], found: Checked) -> None:
    """The manifest agrees with itself: sums, hashes it names twice, its own id."""
    try:
        for what, said, counted in _sums(manifest):
            if said != counted:
                found.add(MANIFEST, "figures", f"{what}: {said} is said, {counted} adds up")
        for side in manifest["splits"].values():
            for shard in side["shards"]:
                if manifest["files"].get(shard["path"]) != shard["sha256"]:
                    found.add(MANIFEST, "figures", f"{shard['path']} has two hashes")
        if writing.id_of(manifest) != manifest["build_id"]:
            found.add(MANIFEST, "figures", "build_id is not that of its recipe and inputs")
    except (KeyError, TypeError, AttributeError) as error:
        found.add(MANIFEST, "manifest", f"it lacks {error}")


def check_record(folder: Path, found: Checked) -> None:
    """``run.json`` is there as it was written."""
    record = folder / "run.json"
    problem = seal.problem(record.read_bytes()) if record.is_file() else "it is missing"
    if problem is not None:
        found.add("run.json", "run_record", problem)


def model_hashes(model: TargetModel) -> dict[str, str]:
    """What the manifest says of the tokenizer's bytes and of its template."""
    template = model.profile.chat_template.encode()
    return {
        "tokenizer_sha256": hashlib.sha256(model.tokenizer_json).hexdigest(),
        "chat_template_sha256": hashlib.sha256(template).hexdigest(),
    }


def open_with_datasets(folder: Path, manifest: dict[str, Any], found: Checked) -> None:
    """``load_from_disk`` gives every split with its rows."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    try:
        loaded = datasets.load_from_disk(str(folder))
        counts = {name: len(rows) for name, rows in loaded.items()}
        for rows in loaded.values():
            _ = rows[0]
    except Exception as error:  # whatever another library makes of damaged files
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        found.add("dataset_dict.json", "datasets", f"load_from_disk fails: {what}")
        return
    said = {name: side["rows"] for name, side in manifest["splits"].items()}
    if counts != said:
        found.add("dataset_dict.json", "datasets", f"datasets finds {counts} rows, not {said}")
