"""Collects the content of the report from a build's files, and renders the page.

``LARGEST`` bounds the page: of everything that grows with the data, a fixed number is shown, each
cut to a fixed length, and it says how many there are.
"""

import functools
import html
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.manifest import counts, records
from pipeline.manifest.json_records import MalformedError, as_json, load
from pipeline.messages import explanations
from pipeline.messages.explanations import AUDITS, GROUPS, Explanation
from pipeline.messages.result import Result
from pipeline.report import charts, drawing, headline, painter
from pipeline.report.headline import LONGEST, cut, number
from stages.chat_template import loss_weights
from stages.errors import UsageError
from stages.findings import Figure, Validation
from stages.rows import carried
from stages.tokens import layouts

LARGEST = 2_000_000  # bytes of a page, whatever the build; those of usual builds are far smaller
CODES = 60  # that are explained
REFUSED = 60  # refused rows among the rows
FILES = 40  # that rows can be chosen by
FOLDER = "DIR"  # in commands of a page that lies in its build: that does not say where it is
_ALWAYS = ("used", "rejected", "duplicates")  # shown where there are none, too
_STATUS = {"pass": "passed", "few": "too few cases", "warn": "warning", "fail": "failed"}


def _figure(figure: Figure) -> str:
    """A figure's value in its unit."""
    value = figure.value
    if figure.unit == "share":
        return headline.share(value)
    if figure.unit == "auc":
        return f"AUC {value:.3f}"
    return number(int(value) if value == int(value) else value)


def _length(figure: Figure) -> float:
    """A figure as a bar, in percent: a share of all, an AUC of the way from chance to certainty."""
    if figure.unit == "auc":
        return round(min(100.0, max(0.0, 200 * (figure.value - 0.5))), 3)
    return round(min(100.0, 100 * figure.value), 3) if figure.unit == "share" else 0.0


@functools.cache
def page() -> jinja2.Template:
    """The template of the page, compiled once per process."""
    environment = headline.environment()
    environment.filters.update(figure=_figure, length_of=_length)
    environment.filters["split_told"] = lambda split: loss_weights.sentence(as_json(split))
    environment.filters["boxes"] = painter.boxes
    environment.filters["noted"] = carried.told
    environment.globals.update(kinds=drawing.KINDS, status=_STATUS, fates=counts.FATES)
    environment.tests["in_use"] = lambda fate, rows: fate in _ALWAYS or getattr(rows, fate)
    for name in ("charts.jinja", "checks.jinja"):
        headline.template(name)
    return headline.template("page.jinja")


def _ledger(build: Build, shown: dict[str, list[records.Reject]]) -> list[dict[str, Any]]:
    """For each code, the refused rows and examples, and the first few rows; the most rows first."""
    manifest = build.manifest
    rows, examples = manifest.rows.rejected_by_code, manifest.examples.rejected_by_code
    codes = sorted({**rows, **examples}, key=lambda c: (-rows.get(c, 0), -examples.get(c, 0), c))
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


def render(shards: drawing.Shards, before: headline.Before | None = None, folder: str = "") -> str:
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
    padding = (drawing.PADDING,) if layouts.load(manifest.layout).pads else ()
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
        lost=charts.losses(manifest.rows.rejected_by_code, manifest.examples.rejected_by_code),
        changes=headline.section(before) if before else None,
        sources=charts.sources(build),
        lengths=charts.lengths(build.audits),
        packing=charts.packing(shards),
        samples=drawn,
        refused=refused,
        files=list(dict.fromkeys(sources))[:FILES],
    )


def make(build: Build) -> str:
    """The page of a build, staged or published.

    Args:
        build: its manifest need not have ``files`` yet, since the page does not list them.
    """
    return render(drawing.Shards(build))


def prepare() -> None:
    """Compile the page's template, which takes as long as the page."""
    page()


def write(build: Build) -> None:
    """Write the page into the build's folder."""
    (build.folder / records.REPORT).write_bytes(make(build).encode())


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
    return make(build).encode(), build.manifest.files.get(records.REPORT, "")


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
    return render(drawing.Shards(build), before, build.shown()).encode()


# Refused rows as pages show them, and the page of a refused build: why, with figures, and the
# first refused rows of each reason.


_READ = 5000  # refused rows; the counts come from the manifest
_SHOWN = 5  # per code
_DETAIL, _RAW = 240, 400  # characters


def losses(rejects: Iterable[records.Reject]) -> dict[str, list[records.Reject]]:
    """The first few refused rows of each code, in texts that a page can show."""
    by_code: dict[str, list[records.Reject]] = {}
    for one in islice(rejects, _READ):
        listed = by_code.setdefault(one.code, [])
        if len(listed) < _SHOWN:
            detail, raw = cut(one.detail, _DETAIL), cut(one.raw, _RAW)
            listed.append(replace(one, id=cut(one.id), detail=detail, raw=raw))
    return by_code


def _rejects(folder: Path | None) -> Iterator[records.Reject]:
    """The refused rows of a staging directory, as far as they can be read."""
    if folder is None or not (folder / records.REJECTS).is_file():
        return
    with (folder / records.REJECTS).open("rb") as lines:
        for line in lines:
            try:
                yield load(records.Reject, line)
            except MalformedError:  # the disk was full: the page does with the rows before
                return


def _validation(folder: Path | None) -> Validation | None:
    try:
        return load(Validation, (folder / records.VALIDATION).read_bytes()) if folder else None
    except (OSError, MalformedError):
        return None


def render_refused(result: Result, staged: Path | None) -> str:
    """The page.

    Args:
        staged: what was made of the build; None if nothing was.
    """
    validation, by_code = _validation(staged), result.figures.get("by_code", {})
    broken = [one for one in validation.expectations if not one.passed] if validation else []
    return headline.render(
        "refused.jinja",
        result=result,
        figures=result.figures,
        lost=charts.losses({c: one[result.figures["unit"]] for c, one in by_code.items()}, {}),
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


# The examples that the page shows: of rows spread evenly over each split, within a fixed size.


ROWS = {"train": 24, "test": 8}  # stored rows of each split; a pack is one
EXAMPLES = 48  # in all, about: packs of a small build show more of theirs
TOKENS = 200  # of an example
CHARACTERS = 400_000  # of all examples as the page spells them; then no more are shown
_MARKUP = 40  # characters around a token, about


class Sample(NamedTuple):
    """A sequence of a stored row: an example, or one side of a pair.

    Attributes:
        row: its number in the split; ``source``: the file or source that its row is of.
        command: the arguments of ``pipeline show`` after the folder; empty where a shell cannot be
            given the row's name.
    """

    split: str
    row: int
    source: str
    strip: drawing.Strip
    command: str


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below ``count``, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round((count - 1) * at / (most - 1)) for at in range(most)})


def _command(row_id: str) -> str:
    plain = drawing.visible(row_id) == row_id and len(row_id) <= LONGEST
    return f"--row {shlex.quote(row_id)}" if plain else ""


def _drawn(shards: drawing.Shards) -> Iterator[Sample]:
    for split, stored in shards.build.splits.items():
        rows = spread(stored.record.rows, ROWS.get(split, ROWS["test"]))
        each = max(2, -(-EXAMPLES // len(rows)))
        for place in rows:
            row = shards.row(split, place)
            ids = row.get("row_ids") or [row["row_id"]]
            for at, strip in enumerate(shards.strips(row, each, TOKENS)):
                row_id = ids[min(at, len(ids) - 1)]
                source = row_id.rpartition(":")[0]
                yield Sample(split, place, source, strip, _command(row_id))


def samples(shards: drawing.Shards) -> list[Sample]:
    """Examples of all splits, in stored order."""
    found: list[Sample] = []
    left = CHARACTERS
    for sample in _drawn(shards):
        left -= sum(_MARKUP + len(html.escape(piece.text)) for piece in sample.strip.pieces)
        if left < 0 and found:
            break
        found.append(sample)
    return found
