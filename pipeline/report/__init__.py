"""``report.html``: one page for people, made from the build's own files and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.drawing import Shards, open_build
from pipeline.report.page import render
from stages.errors import UsageError

REPORT = "report.html"


def make(folder: Path, manifest: dict[str, Any]) -> str:
    """The page of a build that lies in a folder, staged or published.

    Args:
        manifest: without ``files`` where they are not known yet; the page does not list them.
    """
    return render(Shards(folder, manifest))


def write(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the page into the folder."""
    (folder / REPORT).write_bytes(make(folder, manifest).encode())


def remake(folder: Path) -> tuple[bytes, str]:
    """A published build's page, made again, and the sha256 that its manifest names.

    Raises:
        UsageError: the folder is no build, or an export, which has no page.
    """
    manifest = open_build(folder).manifest
    if manifest.get("export"):
        raise UsageError(f"{folder} is an export.", "Give the build that it was made from.")
    return make(folder, manifest).encode(), str(manifest["files"].get(REPORT, ""))
