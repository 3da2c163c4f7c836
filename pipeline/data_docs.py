"""``--data-docs``: Great Expectations' pages of a verdict, in a folder beside the build.

They hold a clock and belong to no build. Trouble with them changes no verdict: it is said, and that
is all.
"""

from __future__ import annotations

from pathlib import Path

import click

from expectations.gx import data_docs
from expectations.verdict import Verdict
from stages.errors import UsageError


def check(folder: Path | None) -> None:
    """The folder must be new, empty, or hold such pages and nothing else.

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
        data_docs.write(folder, verdict.results)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        click.echo(f"warning: no Data Docs, {type(error).__name__}: {text}", err=True)
