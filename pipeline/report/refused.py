"""The page of a refused build: why, with figures, and the first refused rows of each reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import REJECTS, VALIDATION, Reject, Validation
from pipeline.messages.result import Result
from pipeline.report import plots, template
from pipeline.report.explained import explained
from pipeline.report.losses import losses


def _rejects(folder: Path | None) -> Iterator[Reject]:
    """The refused rows of a staging directory, as far as they can be read."""
    if folder is None or not (folder / REJECTS).is_file():
        return
    with (folder / REJECTS).open("rb") as lines:
        for line in lines:
            try:
                yield load(Reject, line)
            except MalformedError:  # the disk was full: the page does with the rows before
                return


def _validation(folder: Path | None) -> Validation | None:
    try:
        return load(Validation, (folder / VALIDATION).read_bytes()) if folder else None
    except (OSError, MalformedError):
        return None


def render(result: Result, staged: Path | None) -> str:
    """The page.

    Args:
        staged: what was made of the build; None if nothing was.
    """
    validation = _validation(staged)
    broken = [one for one in validation.expectations if not one.passed] if validation else []
    by_code = result.figures.get("by_code", {})
    return template.render(
        "refused.jinja",
        result=result,
        figures=result.figures,
        lost=plots.losses({code: one["rows"] for code, one in by_code.items()}, {}),
        losses=losses(_rejects(staged)),
        broken=broken,
        judged=validation.judged if validation else 0,
        explained=explained,
        status={"fail": "failed", "warn": "warning"},
    )
