"""Refused rows as pages show them, and the page of a refused build: why, with figures, and the
first refused rows of each reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import REJECTS, VALIDATION, Reject
from pipeline.messages import explanations
from pipeline.messages.explanations import AUDITS, GROUPS, Explanation
from pipeline.messages.result import Result
from pipeline.report import plots, template
from pipeline.report.template import cut
from stages.findings import Validation

_READ = 5000  # refused rows; the counts come from the manifest
_SHOWN = 5  # per code
_DETAIL, _RAW = 240, 400  # characters


def losses(rejects: Iterable[Reject]) -> dict[str, list[Reject]]:
    """The first few refused rows of each code, in texts that a page can show."""
    by_code: dict[str, list[Reject]] = {}
    for one in islice(rejects, _READ):
        listed = by_code.setdefault(one.code, [])
        if len(listed) < _SHOWN:
            detail, raw = cut(one.detail, _DETAIL), cut(one.raw, _RAW)
            listed.append(replace(one, id=cut(one.id), detail=detail, raw=raw))
    return by_code


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


def explained(code: str) -> Explanation | None:
    """What is known of a code; None of one that a package of the user's own made up."""
    groups = (explanations.group(name) for name in GROUPS if name != AUDITS)
    return next((one for group in groups for one in group.codes if one.code == code), None)
