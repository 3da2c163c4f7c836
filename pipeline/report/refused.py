"""Refused rows as pages show them, and the page of a refused build: why, with figures, and the
first refused rows of each reason."""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

from markupsafe import Markup, escape

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.records import REJECTS, VALIDATION, Reject
from pipeline.messages import explanations
from pipeline.messages.explanations import AUDITS, GROUPS, Explanation
from pipeline.messages.result import Result
from pipeline.report import plots, template
from pipeline.report.drawing import Shards, Strip, TextPiece, visible
from pipeline.report.template import LONGEST, counted, cut
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


# The examples that the page shows: of rows spread evenly over each split, within a fixed size.


ROWS = {"train": 24, "test": 8}  # stored rows of each split; a pack is one
EXAMPLES = 48  # in all, about: packs of a small build show more of theirs
TOKENS = 200  # of an example
CHARACTERS = 400_000  # of all examples as the page spells them; then no more are shown
_MARKUP = 40  # characters around a token, about


@dataclass(frozen=True, slots=True)
class Sample:
    """A sequence of a stored row: an example, or one side of a pair.

    Attributes:
        row: its number in the split; ``source``: the file or source that its row is of.
        command: the arguments of ``pipeline show`` after the folder; empty where a shell cannot be
            given the row's name.
    """

    split: str
    row: int
    source: str
    strip: Strip
    command: str

    @property
    def tokens(self) -> Markup:
        """Its tokens: a span for each run of one kind, a box for each token.

        Spelled here, since a template takes longer for the thousands of them.
        """
        last, missing = self.strip.left_out
        gap = f'<span class="cut"> … {counted(missing, "token")} left out … </span>'
        spelled: list[str] = []
        for kind, run in groupby(enumerate(self.strip.pieces), key=lambda each: each[1].kind):
            boxes = [_box(piece) + (gap if at == last else "") for at, piece in run]
            spelled.append(f'<span class="{kind}">{"".join(boxes)}</span>')
        return Markup("".join(spelled))  # all text of the data went through ``escape``


def _box(piece: TextPiece) -> str:
    looks = "k" * piece.control + "t" * piece.spelled
    named = f' class="{looks}"' if looks else ""
    ids = " ".join(map(str, piece.ids))
    return f'<u{named} title="{ids}">{escape(piece.text)}</u>'.replace("\n", "↵\n")


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below ``count``, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round((count - 1) * at / (most - 1)) for at in range(most)})


def _command(row_id: str) -> str:
    plain = visible(row_id) == row_id and len(row_id) <= LONGEST
    return f"--row {shlex.quote(row_id)}" if plain else ""


def _drawn(shards: Shards) -> Iterator[Sample]:
    for split, stored in shards.build.splits.items():
        rows = spread(stored.record.rows, ROWS.get(split, ROWS["test"]))
        each = max(2, -(-EXAMPLES // len(rows)))
        for number in rows:
            row = shards.row(split, number)
            ids = row.get("row_ids") or [row["row_id"]]
            for at, strip in enumerate(shards.strips(row, each, TOKENS)):
                row_id = ids[min(at, len(ids) - 1)]
                source = row_id.rpartition(":")[0]
                yield Sample(split, number, source, strip, _command(row_id))


def samples(shards: Shards) -> list[Sample]:
    """Examples of all splits, in stored order."""
    found: list[Sample] = []
    left = CHARACTERS
    for sample in _drawn(shards):
        pieces = sample.strip.pieces
        left -= sum(_MARKUP + len(html.escape(piece.text)) for piece in pieces)
        if left < 0 and found:
            break
        found.append(sample)
    return found
