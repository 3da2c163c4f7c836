"""``report.html``: a page about a build, made from the build's files only."""

from __future__ import annotations

from pathlib import Path

from pipeline.build_dir.build import Build
from pipeline.manifest.records import REPORT
from pipeline.report import page
from pipeline.report.page import render
from pipeline.view.drawing import Shards
from stages.errors import UsageError

__all__ = ["REPORT", "make", "page", "prepare", "remake", "render", "write"]


def make(build: Build) -> str:
    """The page of a build, staged or published.

    Args:
        build: its manifest need not have ``files`` yet, since the page does not list them.
    """
    return render(Shards(build))


def prepare() -> None:
    """Compile the page's template, which takes as long as the page."""
    page.template()


def write(build: Build) -> None:
    """Write the page into the build's folder."""
    (build.folder / REPORT).write_bytes(make(build).encode())


def remake(folder: Path) -> tuple[bytes, str]:
    """The page of a published build, made again, and the sha256 of the page in its manifest.

    Raises:
        UsageError: the folder is not a build, or an export, which has no page.
        DataError: a file that the page is made from is damaged.
    """
    build = Build.open(folder)
    if build.manifest.export:
        raise UsageError(f"{folder} is an export.", "Give the build that it was made from.")
    return make(build).encode(), build.manifest.files.get(REPORT, "")
