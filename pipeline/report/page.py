"""Collects the content of the report from a build's files, and renders the page.

The template engine escapes every text, and the page's content policy forbids scripts and network
access, so no value of the data can be more than text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2
import orjson

from pipeline import tasks
from pipeline.build_dir.build import Build
from pipeline.manifest.counts import TurnSplit
from pipeline.manifest.json_records import as_json
from pipeline.manifest.records import AuditRecord, Audits, FigureRecord
from pipeline.report import plots
from pipeline.report.reject_samples import losses
from pipeline.view.drawing import KINDS, PADDING, Shards, visible
from stages import layouts
from stages.chat_template import turn_split
from stages.rows import notes

SAMPLES = 4  # stored rows that are drawn
EXAMPLES = 3  # of a pack
TOKENS = 240  # of an example
_FATES = {
    "used": "used",
    "rejected": "refused",
    "duplicates": "duplicates",
    "filtered": "filtered",
    "contaminated": "contaminated",
    "near_duplicates": "near-duplicates",
    "left_out": "left out by budgets",
}
_ALWAYS = ("used", "rejected", "duplicates")  # shown where there are none, too
_STATUS = {
    "pass": "passed",
    "few": "too few cases",
    "warn": "warning",
    "fail": "failed",
}


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    return f"{value:,.2f}".replace(",", "\u202f")


def _figure(figure: FigureRecord) -> str:
    """A figure's value in its unit."""
    value = figure.value
    if figure.unit == "share":
        return f"{value:.1%}"
    if figure.unit == "auc":
        return f"AUC {value:.3f}"
    return _number(int(value) if value == int(value) else value)


def _spelled(value: object) -> str:
    """An option as JSON; a tuple is spelled like the list that it is in the manifest."""
    return orjson.dumps(value).decode()


def _split_told(split: TurnSplit) -> str:
    return turn_split.sentence(as_json(split))


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 4) if whole else 0.0


@functools.cache
def template() -> jinja2.Template:
    """The template of the page, compiled once per process."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, figure=_figure, visible=visible, spelled=_spelled)
    environment.filters["noted"] = notes.of
    environment.globals.update(percent=_percent, kinds=KINDS, status=_STATUS)
    environment.globals.update(fates=_FATES)
    environment.tests["in_use"] = lambda fate, rows: fate in _ALWAYS or getattr(rows, fate)
    environment.filters["split_told"] = _split_told
    return environment.from_string(Path(__file__).with_name("page.jinja").read_text("utf-8"))


def _rows(count: int) -> list[int]:
    """Numbers of a few rows, evenly spaced, the first and the last among them."""
    last = count - 1
    return sorted({round(last * i / (SAMPLES - 1)) for i in range(SAMPLES)})


def _samples(shards: Shards) -> list[dict[str, Any]]:
    samples = []
    for number in _rows(shards.build.splits["train"].record.rows):
        strips = shards.strips(shards.row("train", number), EXAMPLES, TOKENS)
        samples.append({"number": number, "strips": strips})
    return samples


def _warnings(audits: Audits) -> list[AuditRecord]:
    return [audit for audit in audits.audits if audit.status in ("warn", "fail")]


def _ledger(build: Build) -> list[dict[str, Any]]:
    """For each code, the refused rows and examples, and the first few rows; the most rows first."""
    rows, examples_by_code = (
        build.manifest.rows.rejected_by_code,
        build.manifest.examples.rejected_by_code,
    )
    examples = losses(build.rejects())
    entries = [
        {
            "code": code,
            "rows": rows.get(code, 0),
            "examples": examples_by_code.get(code, 0),
            "shown": examples.get(code, []),
        }
        for code in {**rows, **examples_by_code}
    ]
    return sorted(entries, key=lambda loss: (-loss["rows"], -loss["examples"], loss["code"]))


def render(shards: Shards) -> str:
    """The page.

    Args:
        shards: of the build; the page does not depend on the folder's name.
    """
    build = shards.build
    kind = tasks.kind_of(build.manifest.task)
    padding = (PADDING,) if layouts.load(build.manifest.layout).pads else ()
    return template().render(
        m=build.manifest,
        kind=kind,
        legend=(*kind.legend, *padding),
        audits=build.audits,
        warnings=_warnings(build.audits),
        validation=build.validation,
        serving=build.serving,
        losses=_ledger(build),
        lengths=plots.lengths(build.audits),
        packing=plots.packing(shards),
        samples=_samples(shards),
    )
