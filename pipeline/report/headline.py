"""The page's first line (may one train on this; what was lost), and the engine of templates.

Its colour is that of the worst answer: whether the expectations hold, whether an audit warns, and
how much was lost. What was left out on purpose (filters, budgets, duplicates) is not lost.
"""

import base64
import functools
import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import orjson
from markupsafe import Markup

from pipeline import lines
from pipeline.builds import limits
from pipeline.builds.build import Build
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.records import Change
from pipeline.report import charts, drawing
from stages.errors import were
from stages.findings import AuditResult, Audits, Validation

NOTABLE = 0.01  # of the rows, refused: as much as --max-reject allows by default
GRAVE = 0.2
GOOD, WARN, BAD = "pass", "warn", "fail"
_WORST = (GOOD, WARN, BAD)


class Answer(NamedTuple):
    """One sentence, and how good the news is."""

    status: str
    text: str


class Headline(NamedTuple):
    """The verdict in words; ``status`` is that of the worst answer."""

    text: str
    answers: tuple[Answer, ...]

    @property
    def status(self) -> str:
        return max((answer.status for answer in self.answers), key=_WORST.index)


def warned(audits: Audits) -> list[AuditResult]:
    """The audits that are not content."""
    return [audit for audit in audits.audits if audit.status in (WARN, BAD)]


def _of_expectations(validation: Validation) -> Answer:
    judged, broken = validation.judged, sum(not one.passed for one in validation.expectations)
    if not broken:
        return Answer(GOOD, f"All {counted(judged, 'expectation')} hold on the written shards.")
    does = "does" if broken == 1 else "do"
    text = f"{number(broken)} of {counted(judged, 'expectation')} {does} not hold."
    return Answer(WARN if validation.passed else BAD, text)


def _severity(lost: float) -> str:
    return BAD if lost >= GRAVE else WARN if lost > NOTABLE else GOOD


def _of_rows(manifest: Manifest) -> Answer:
    rows = manifest.rows
    if not rows.rejected:
        return Answer(GOOD, f"None of {counted(rows.in_, 'row')} was refused.")
    lost, of = rows.rejected / rows.in_, f"{number(rows.rejected)} of {counted(rows.in_, 'row')}"
    return Answer(_severity(lost), f"{of} {were(rows.rejected)} refused ({share(lost)}).")


def _beside(manifest: Manifest) -> list[Answer]:
    """Losses inside rows that were used."""
    found = []
    examples, tokens = manifest.examples, manifest.tokens
    beside = sum(examples.rejected_in_part.values())
    if beside and examples.made:
        lost = beside / examples.made
        more = f"{counted(beside, 'example')} more {were(beside)} refused"
        text = f"{more}, of rows with other examples ({share(lost)})."
        found.append(Answer(_severity(lost), text))
    if tokens.truncated:
        lost = tokens.truncated / (manifest.tokens_in_rows + tokens.truncated)
        count = tokens.truncated
        text = f"{counted(count, 'token')} {were(count)} cut off ({share(lost)})."
        found.append(Answer(_severity(lost), text))
    return found


def headline(manifest: Manifest, validation: Validation, audits: Audits) -> Headline:
    """What the page says first."""
    answers = [_of_expectations(validation), _of_rows(manifest), *_beside(manifest)]
    notes = sum(figure.status == one.status for one in warned(audits) for figure in one.figures)
    if notes:
        answers.append(Answer(WARN, f"{counted(notes, 'audit finding')} to look at."))
    lost = max((answer.status for answer in answers[1:]), key=_WORST.index)
    text = "Fit to train on" if validation.passed else "Not fit to train on"
    if validation.passed and lost == BAD:
        text += ", but much was lost"
    elif validation.passed and WARN in (lost, answers[0].status):
        text += ", with warnings"
    return Headline(text, tuple(answers))


# What changed against the build before, for a page that lies outside its build.
#
# ``run.json`` has it for the build that was replaced; two builds that are there are compared again.


SHOWN = 60  # numbers, those that changed most first
DRAWN = 12


class Before(NamedTuple):
    """Numbers of another build and of this one; ``of`` says in a sentence which other."""

    of: str
    numbers: Mapping[str, Change]


def recorded(build: Build) -> Before | None:
    """Against the build that this one replaced; None where it replaced none."""
    changed = build.run.drift
    return None if changed is None else Before("Against the build that it replaced.", changed)


def against(build: Build, other: Build) -> Before:
    """Against a build that is there."""
    text = f"Against build {other.manifest.build_id} in {other.shown()}."
    return Before(text, limits.between(other, build))


def _weight(change: Change) -> float:
    return float("inf") if change.change is None else abs(change.change)


def changed(value: float | None) -> str:
    """One of the two values of a number that changed."""
    if value is None:
        return "none"
    return number(int(value)) if value == int(value) else f"{value:.4g}"


def section(before: Before) -> dict[str, Any]:
    """The section of the page: the numbers that differ, those that changed most first."""
    ordered = sorted(before.numbers.items(), key=lambda entry: -_weight(entry[1]))
    drawn = [
        charts.Entry(f"{cut(name, 60)} {'▲' if one.change > 0 else '▼'}", abs(one.change))
        for name, one in ordered
        if one.change
    ]
    return {
        "of": cut(before.of),
        "rows": [(name, one, _weight(one) >= limits.NOTABLE) for name, one in ordered[:SHOWN]],
        "count": len(ordered),
        "bars": charts.bars(drawn[:DRAWN], shares=True) if drawn else None,
    }


# The template engine of pages, their style, their one script, and the policy that pins both.
#
# The engine escapes every text. The content policy names the hashes of the style and of the script,
# and forbids everything else, network access included, so no value of the data can be more than
# text.


LONGEST = 300  # characters of a value of the data; the page says nothing by its length
_FOLDER = Path(__file__).parent


def number(value: float) -> str:
    """With a narrow space between thousands."""
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return text.replace(",", "\u202f")


def counted(count: int, noun: str) -> str:
    """As ``stages.errors``, with the page's narrow spaces."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def spaced(text: str) -> str:
    """Narrow spaces between the thousands of all whole numbers, in place of commas if any."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return re.sub(r"(?<![\w.-])\d{4,}(?![\w.-])", lambda found: number(int(found[0])), plain)


def grouped(value: float) -> str:
    """A tick of an axis: as short as it can be."""
    return f"{value:,g}".replace(",", "\u202f") if value < 1e5 else number(round(value))


def cut(text: object, longest: int = LONGEST) -> str:
    """A text of the data that is safe to show: no invisible characters, and not too long, even
    where half of it must be escaped."""
    text = str(text)
    safe = drawing.visible(text if len(text) <= longest else f"{text[: longest - 1]}…")
    while len(html.escape(safe)) > 2 * longest:
        safe = f"{safe[: len(safe) // 2]}…"
    return safe


def percent(part: float, whole: float) -> float:
    """Of 100; 0 of nothing."""
    return round(100 * part / whole, 4) if whole else 0.0


def share(value: float) -> str:
    """A share from 0 to 1 as a reader wants it: what is there never shows as none or as all."""
    text = f"{value:.1%}"
    if value > 0 and text == "0.0%":
        return "under 0.1%"
    return "over 99.9%" if value < 1 and text == "100.0%" else text


def _spelled(value: object) -> str:
    """An option as JSON; a tuple is spelled like the list that it is in the manifest."""
    return orjson.dumps(value).decode()


@functools.cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


@functools.cache
def policy() -> str:
    """The content of ``Content-Security-Policy``."""
    style, script = (
        base64.b64encode(hashlib.sha256(_read(name).encode()).digest()).decode()
        for name in ("page.css", "page.js")
    )
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@functools.cache
def environment() -> jinja2.Environment:
    """The engine, made once per process."""
    made = lines.templates(_FOLDER, pages=True)
    made.filters.update(number=number, grouped=grouped, spaced=spaced, share=share)
    made.filters.update(cut=cut, spelled=_spelled, counted=counted, changed=changed)
    made.globals.update(percent=percent, policy=policy, inline=lambda name: Markup(_read(name)))
    return made


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this folder, compiled once per process."""
    return environment().get_template(name)


def render(name: str, **content: Any) -> str:
    """A page."""
    return template(name).render(**content)
