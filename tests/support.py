"""What several test files use that is no fixture."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_data"


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str


def read_manifest(folder: Path) -> dict[str, Any]:
    """A build's manifest."""
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return found


def example(name: str) -> ModuleType:
    """A program of ``examples/``, imported from its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module
