"""Answers in the cache that take long to find and depend on nothing but what their names are of.

A file is named by a hash of all that its answer depends on, the code included. One that is damaged,
or of another name, holds no answer; without a writable cache every answer is found again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.manifest import seal
from pipeline.manifest.dataset_files import write_json


def read(folder: Path, key: str) -> dict[str, Any] | None:
    """The answer of this name; None where there is none."""
    path = folder / f"{key}.json"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if seal.problem(data) is not None:
        return None
    content = json.loads(data)
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
