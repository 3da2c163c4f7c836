"""Collects the content of the report from a build's files, and renders the page.

``LARGEST`` bounds the page: of everything that grows with the data, a fixed number is shown, each
cut to a fixed length, and it says how many there are.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.manifest.counts import TurnSplit
from pipeline.manifest.json_records import as_json
from pipeline.manifest.records import REPORT, Reject
from pipeline.report import headline, plots, template
from pipeline.report.drawing import KINDS, PADDING, Shards
from pipeline.report.headline import Before
from pipeline.report.refused import explained, losses, samples
from pipeline.report.template import cut, number
from stages.chat_template import loss_weights
from stages.errors import UsageError
from stages.findings import Figure
from stages.rows import carried
from stages.tokens import layouts

LARGEST = 2_000_000  # bytes of a page, whatever the build; those of usual builds are far smaller
CODES = 60  # that are explained
REFUSED = 60  # refused rows among the rows
FILES = 40  # that rows can be chosen by
FOLDER = "DIR"  # in commands of a page that lies in its build: that does not say where it is
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


def _figure(figure: Figure) -> str:
    """A figure's value in its unit."""
    value = figure.value
    if figure.unit == "share":
        return template.share(value)
    if figure.unit == "auc":
        return f"AUC {value:.3f}"
    return number(int(value) if value == int(value) else value)


def _length(figure: Figure) -> float:
    """A figure as a bar, in percent: a share of all, an AUC of the way from chance to certainty."""
    if figure.unit == "auc":
        return round(min(100.0, max(0.0, 200 * (figure.value - 0.5))), 3)
    return round(min(100.0, 100 * figure.value), 3) if figure.unit == "share" else 0.0


def _split_told(split: TurnSplit) -> str:
    return loss_weights.sentence(as_json(split))


@functools.cache
def page() -> jinja2.Template:
    """The template of the page, compiled once per process."""
    environment = template.environment()
    environment.filters.update(figure=_figure, length_of=_length, split_told=_split_told)
    environment.filters["noted"] = carried.of
    environment.globals.update(kinds=KINDS, status=_STATUS, fates=_FATES)
    environment.tests["in_use"] = lambda fate, rows: fate in _ALWAYS or getattr(rows, fate)
    for name in ("charts.jinja", "rows.jinja", "checks.jinja"):
        template.template(name)
    return template.template("page.jinja")


def _ledger(build: Build, shown: dict[str, list[Reject]]) -> list[dict[str, Any]]:
    """For each code, the refused rows and examples, and the first few rows; the most rows first."""
    rows, examples = (
        build.manifest.rows.rejected_by_code,
        build.manifest.examples.rejected_by_code,
    )
    codes = sorted(
        {**rows, **examples},
        key=lambda code: (-rows.get(code, 0), -examples.get(code, 0), code),
    )
    return [
        {
            "code": code,
            "rows": rows.get(code, 0),
            "examples": examples.get(code, 0),
            "shown": shown.get(code, []),
            "told": explained(code),
        }
        for code in codes[:CODES]
    ]


def render(shards: Shards, before: Before | None = None, folder: str = "") -> str:
    """The page.

    Args:
        shards: of the build.
        before: what changed against another build; the page that lies in a build has none of it,
            since equal builds have equal pages.
        folder: of the build, for commands; empty for the page that lies in it.
    """
    build = shards.build
    manifest = build.manifest
    kind = tasks.kind_of(manifest.task)
    padding = (PADDING,) if layouts.load(manifest.layout).pads else ()
    shown, drawn = losses(build.rejects()), samples(shards)
    refused = [row for rows in shown.values() for row in rows][:REFUSED]
    sources = [cut(one.source) for one in drawn]
    sources += [row.id.rpartition(":")[0] for row in refused]
    return page().render(
        m=manifest,
        kind=kind,
        in_build=not folder,
        folder=cut(folder or FOLDER),
        headline=headline.headline(manifest, build.validation, build.audits),
        legend=(*kind.legend, *padding),
        audits=build.audits,
        warnings=headline.warned(build.audits),
        validation=build.validation,
        broken=[law for law in build.validation.expectations if not law.passed],
        serving=build.serving,
        losses=_ledger(build, shown),
        lost=plots.losses(manifest.rows.rejected_by_code, manifest.examples.rejected_by_code),
        changes=headline.section(before) if before else None,
        sources=plots.sources(build),
        lengths=plots.lengths(build.audits),
        packing=plots.packing(shards),
        samples=drawn,
        refused=refused,
        files=list(dict.fromkeys(sources))[:FILES],
    )


def make(build: Build) -> str:
    """The page of a build, staged or published.

    Args:
        build: its manifest need not have ``files`` yet, since the page does not list them.
    """
    return render(Shards(build))


def prepare() -> None:
    """Compile the page's template, which takes as long as the page."""
    page()


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
        before = headline.against(build, _opened(other))
    elif build.manifest.published is None:  # such a copy leaves run.json out
        before = headline.recorded(build)
    return render(Shards(build), before, build.shown()).encode()
