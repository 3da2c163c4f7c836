"""What several test files use that is no fixture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
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
