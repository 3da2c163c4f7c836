"""The page of a refused build: why, with figures, and the first refused rows of each reason."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import jinja2

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import REJECTS, VALIDATION, Reject, Validation
from pipeline.messages.result import Result
from pipeline.report.reject_samples import losses
from pipeline.view.drawing import visible


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    text = Path(__file__).with_name("refused.jinja").read_text("utf-8")
    return environment.from_string(text)


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
    return _template().render(
        result=result,
        figures=result.figures,
        losses=losses(_rejects(staged)),
        broken=broken,
    )
