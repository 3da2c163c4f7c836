"""Answers in the cache that take long to find and depend on nothing but what their names are of.

A file is named by a hash of all that its answer depends on, the code included. One that is damaged,
or of another name, holds no answer; without a writable cache every answer is found again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.manifest import seal
from pipeline.manifest.dataset_files import write_json
from stages import catalog


def read(folder: Path, key: str) -> dict[str, Any] | None:
    """The answer of this name; None where there is none."""
    try:
        content = seal.content_of((folder / f"{key}.json").read_bytes())
    except (OSError, ValueError):
        return None
    answer = content.get("answer")
    return answer if content.get("key") == key and isinstance(answer, dict) else None


def write(folder: Path, key: str, answer: Mapping[str, Any]) -> None:
    """Keep an answer, whole or not at all."""
    temporary = folder / f"{key}.{os.getpid()}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(temporary, seal.sealed({"key": key, "answer": dict(answer)}))
        temporary.replace(folder / f"{key}.json")
    except OSError:
        with suppress(OSError):  # a read-only disk refuses this even where there is no such file
            temporary.unlink()


# Hashes that name a recipe and a part: of options, profile and code.


def _sources(folder: Path) -> list[str]:
    """The paths of the code in a folder and below it, in one order everywhere. Every build
    asks as it starts; ``Path.rglob`` takes longer than all the reading."""
    return sorted(
        f"{place}/{name}"
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".py", ".jinja", ".toml"))
    )


@cache
def code_version() -> str:
    """Hash of this installation's code, and of what other packages add to it: a part made by other
    code is another part."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("expectations", "pipeline", "stages"):
        for name in _sources(root / package):
            path = Path(name)
            digest.update(f"{name.removeprefix(f'{root}/')}\0".encode())
            digest.update(path.read_bytes())
    for added in catalog.installed():
        digest.update(added)
    return digest.hexdigest()


def hash_of(value: object) -> str:
    """Of a value, as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
