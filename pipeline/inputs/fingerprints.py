"""Hashes that name a recipe and a part: of options, profile and code."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

from stages import catalog


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
