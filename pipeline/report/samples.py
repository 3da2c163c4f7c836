"""The examples that the page shows: of rows spread evenly over each split, within a fixed size."""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from pipeline.report.drawing import Shards, Strip, TextPiece, visible
from pipeline.report.template import LONGEST, counted

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
