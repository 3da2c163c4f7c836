"""What was measured: one JSON file for each cell, written after every run."""

import functools
import json
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

from pipeline.inputs.declared import code_version

FOLDER = Path(__file__).parent / "results"
Content: TypeAlias = dict[str, Any]
_PACKAGES = ("transformers", "tokenizers", "fastokens", "datasets", "pyarrow", "polars", "orjson")


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


@functools.cache
def surroundings() -> Content:
    """The code and the machine: cells with the same can stand in one table."""
    memory = Path("/proc/meminfo").read_text().split()[1] if Path("/proc/meminfo").exists() else "0"
    return {
        "code": code_version(),
        "python": platform.python_version(),
        "packages": _versions(),
        "processor": _processor(),
        "memory": round(int(memory) / 2**20),
    }


def read(name: str, folder: Path | None = None) -> Content | None:
    """A cell's file; None where it was not measured."""
    path = (folder or FOLDER) / f"{name}.json"
    if not path.exists():
        return None
    found: Content = json.loads(path.read_text("utf-8"))
    return found


def current(name: str, settings: Content) -> Content:
    """A cell to continue: what was measured of it with this code and these settings, or nothing."""
    found = read(name)
    same = found is not None and found["settings"] == settings
    if found is not None and same and found["surroundings"] == surroundings():
        return found
    return {"settings": settings, "surroundings": surroundings(), "day": "", "measured": {}}


def write(name: str, content: Content) -> None:
    """Write a cell, whole or not at all."""
    FOLDER.mkdir(exist_ok=True)
    content["day"] = date.today().isoformat()
    partial = FOLDER / f"{name}.partial"
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    partial.rename(FOLDER / f"{name}.json")
