"""``--data-docs``: the HTML pages of Great Expectations for a verdict, in a folder of their own.

They contain the time of the run, so they cannot be part of a build. An error while writing them is
only a warning.
"""

from __future__ import annotations

from pathlib import Path

from expectations import data_docs
from expectations.verdict import Verdict
from pipeline.messages.session import current
from stages.errors import UsageError


def check(folder: Path | None) -> None:
    """Require that the folder is new, empty, or holds such pages and no other file.

    Raises:
        UsageError: it is a file, or other files are in it.
    """
    if folder is None or not folder.exists():
        return
    present = list(folder.iterdir()) if folder.is_dir() else [folder]
    if present and not data_docs.is_own(folder):
        raise UsageError(f"{folder} has other files in it.", "Give another with --data-docs.")


def offer(folder: Path | None, verdict: Verdict) -> None:
    """Write the pages, if they were asked for."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        data_docs.write(folder, verdict.results, len(verdict.findings))
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        current().warn(f"no Data Docs, {type(error).__name__}: {text}")
