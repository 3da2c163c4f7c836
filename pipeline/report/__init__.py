"""``report.html``: a page about a build, made from the build's files only.

page                 what is on it, and its templates
headline             its first line: fit to train on or not, and what was lost
plots, charts        its charts: what they show, their bars and axes
samples              examples of the shards
changes              what differs from the build before, for pages that lie outside their build
refused              refused rows, and the page of a refused build
template             the engine, the style and the script of all pages
"""

from __future__ import annotations

from pathlib import Path

from pipeline.builds.build import Build
from pipeline.manifest.records import REPORT
from pipeline.report import changes, page
from pipeline.report.drawing import Shards
from pipeline.report.page import render
from stages.errors import UsageError


def make(build: Build) -> str:
    """The page of a build, staged or published.

    Args:
        build: its manifest need not have ``files`` yet, since the page does not list them.
    """
    return render(Shards(build))


def prepare() -> None:
    """Compile the page's template, which takes as long as the page."""
    page.page()


def write(build: Build) -> None:
    """Write the page into the build's folder."""
    (build.folder / REPORT).write_bytes(make(build).encode())


def _opened(folder: Path) -> Build:
    build = Build.open(folder)
    if build.manifest.export:
        raise UsageError(f"{folder} is an export.", "Give the build that it was made from.")
    return build


def remake(folder: Path) -> tuple[bytes, str]:
    """The page of a published build, made again, and the sha256 of the page in its manifest.

    Raises:
        UsageError: the folder is not a build, or an export, which has no page.
        DataError: a file that the page is made from is damaged.
    """
    build = _opened(folder)
    return make(build).encode(), build.manifest.files.get(REPORT, "")


def with_changes(folder: Path, other: Path | None = None) -> bytes:
    """A page of a published build that lies elsewhere: its commands name the folder, and it says
    what changed against another build, or else against the one that the build replaced.

    Raises:
        UsageError, DataError: as ``remake`` does, for either build.
    """
    build = _opened(folder)
    before = None
    if other is not None:
        before = changes.against(build, _opened(other))
    elif build.manifest.published is None:  # such a copy leaves run.json out
        before = changes.recorded(build)
    return render(Shards(build), before, build.shown()).encode()
