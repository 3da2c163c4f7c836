"""The page's first line: may one train on this, and what was lost on the way.

Its colour is that of the worst answer: whether the expectations hold, whether an audit warns, and
how much was lost. What was left out on purpose (filters, budgets, duplicates) is not lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.builds import limits
from pipeline.builds.build import Build
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.records import Change
from pipeline.report import charts
from pipeline.report.charts import Bars, Entry
from pipeline.report.template import counted, cut, number, share
from stages.errors import were
from stages.findings import AuditResult, Audits, Validation

NOTABLE = 0.01  # of the rows, refused: as much as --max-reject allows by default
GRAVE = 0.2
GOOD, WARN, BAD = "pass", "warn", "fail"
_WORST = (GOOD, WARN, BAD)


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence, and how good the news is."""

    status: str
    text: str


@dataclass(frozen=True, slots=True)
class Headline:
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
        text = f"All {counted(judged, 'expectation')} hold on the written shards."
        return Answer(GOOD, text)
    does = "does" if broken == 1 else "do"
    text = f"{number(broken)} of {counted(judged, 'expectation')} {does} not hold."
    return Answer(WARN if validation.passed else BAD, text)


def _severity(lost: float) -> str:
    return BAD if lost >= GRAVE else WARN if lost > NOTABLE else GOOD


def _of_rows(manifest: Manifest) -> Answer:
    rows = manifest.rows
    if not rows.rejected:
        return Answer(GOOD, f"None of {counted(rows.in_, 'row')} was refused.")
    lost = rows.rejected / rows.in_
    of = f"{number(rows.rejected)} of {counted(rows.in_, 'row')}"
    text = f"{of} {were(rows.rejected)} refused ({share(lost)})."
    return Answer(_severity(lost), text)


def _beside(manifest: Manifest) -> list[Answer]:
    """Losses inside rows that were used."""
    found = []
    examples, tokens = manifest.examples, manifest.tokens
    codes = manifest.rows.rejected_by_code
    beside = sum(max(0, n - codes.get(c, 0)) for c, n in examples.rejected_by_code.items())
    if beside and examples.made:
        lost = beside / examples.made
        more = f"{counted(beside, 'example')} more {were(beside)} refused"
        text = f"{more}, of rows that kept others."
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
        answers.append(Answer(WARN, f"{counted(notes, 'finding')} of the audits to look at."))
    lost = max((answer.status for answer in answers[1:]), key=_WORST.index)
    if not validation.passed:
        text = "Not fit to train on"
    elif lost == BAD:
        text = "Sound, but much was lost"
    elif WARN in (lost, answers[0].status):
        text = "Fit to train on, with warnings"
    else:
        text = "Fit to train on"
    return Headline(text, tuple(answers))


# What changed against the build before, for a page that lies outside its build.
#
# ``run.json`` has it for the build that was replaced; two builds that are there are compared again.


SHOWN = 60  # numbers, those that changed most first
DRAWN = 12


@dataclass(frozen=True, slots=True)
class Before:
    """Numbers of another build and of this one; ``of`` says in a sentence which other."""

    of: str
    numbers: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class Line:
    """One number that changed, as text; ``notable``: by a tenth or more, or from nothing."""

    name: str
    before: str
    after: str
    change: str
    notable: bool


@dataclass(frozen=True, slots=True)
class Section:
    """The section of the page; ``count``: numbers that changed, of which ``rows`` are shown."""

    of: str
    rows: tuple[Line, ...]
    count: int
    bars: Bars | None


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


def _text(value: float | None) -> str:
    if value is None:
        return "none"
    return number(int(value)) if value == int(value) else f"{value:.4g}"


def _line(name: str, one: Change) -> Line:
    change = "from nothing" if one.change is None else f"{one.change:+.1%}"
    if one.after is None:
        change = "gone"
    return Line(
        cut(name, 120), _text(one.before), _text(one.after), change, _weight(one) >= limits.NOTABLE
    )


def section(before: Before) -> Section:
    """The numbers that differ, those that changed most first."""
    ordered = sorted(before.numbers.items(), key=lambda entry: -_weight(entry[1]))
    drawn = [
        Entry(f"{cut(name, 60)} {'▲' if one.change > 0 else '▼'}", abs(one.change))
        for name, one in ordered
        if one.change
    ]
    return Section(
        cut(before.of),
        tuple(_line(name, one) for name, one in ordered[:SHOWN]),
        count=len(ordered),
        bars=charts.bars(drawn[:DRAWN], shares=True) if drawn else None,
    )
