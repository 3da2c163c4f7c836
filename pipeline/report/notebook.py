"""What a notebook shows of a build or a plan: its verdict, its counts, what was refused, one row.

It is a fragment of HTML in the colours of the report, without scripts; every text of the data is
escaped.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.report import drawing, headline
from pipeline.report.headline import counted, number
from stages.findings import Audits

TOKENS = 200  # of a sequence
CODES = 5  # of refused rows


def boxes(strip: drawing.Strip) -> Markup:
    """The tokens of a sequence: a span for each run of one kind, a box for each token.

    Spelled here, since a template takes longer for the thousands of them.
    """
    last, missing = strip.left_out
    gap = f'<span class="cut"> … {counted(missing, "token")} left out … </span>'
    spelled: list[str] = []
    for kind, run in groupby(enumerate(strip.pieces), key=lambda each: each[1].kind):
        drawn = [_box(piece) + (gap if at == last else "") for at, piece in run]
        spelled.append(f'<span class="{kind}">{"".join(drawn)}</span>')
    return Markup("".join(spelled))  # all text of the data went through ``escape``


def _box(piece: drawing.TextPiece) -> str:
    looks = "k" * piece.control + "t" * piece.spelled
    named = f' class="{looks}"' if looks else ""
    ids = " ".join(map(str, piece.ids))
    return f'<u{named} title="{ids}">{escape(piece.text)}</u>'.replace("\n", "↵\n")


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows that were refused for one reason."""

    code: str
    rows: int
    detail: str = ""


def html(
    title: str,
    verdict: headline.Headline,
    cards: Sequence[tuple[str, str, str]],
    lost: Sequence[Lost],
    strips: Sequence[drawing.Strip],
) -> str:
    """The fragment.

    Args:
        cards: what a number is, the number, and of what; lost: all reasons, those with the most
            rows first; strips: the sequences of one row.
    """
    headline.environment().filters["boxes"] = boxes
    return headline.render(
        "notebook.jinja",
        title=title,
        headline=verdict,
        cards=cards,
        lost=lost[:CODES],
        codes=len(lost),
        strips=strips,
        legend={kind: drawing.KINDS[kind] for kind in _kinds(strips)},
    )


def _kinds(strips: Sequence[drawing.Strip]) -> list[str]:
    """The kinds of tokens that are shown, in the order of their declaration."""
    shown = {piece.kind for strip in strips for piece in strip.pieces}
    return [kind for kind in drawing.KINDS if kind in shown]


def of_build(build: Build) -> str:
    """A finished build, or an export of one.

    Raises:
        DataError: a file of it is missing or damaged.
    """
    m = build.manifest
    audits = Audits(1, ()) if m.export else build.audits
    trained = "compared" if tasks.kind_of(m.task).compares else "trained"
    shards = drawing.Shards(build)
    split = next((name for name, side in build.splits.items() if side.record.rows), None)
    return html(
        f"{m.task} data for {m.model.name} in {build.shown()}",
        headline.headline(m, build.validation, audits),
        [
            ("rows used", number(m.rows.used), f"of {number(m.rows.in_)} read"),
            ("examples", number(m.examples.kept), f"of {number(m.examples.made)} made"),
            ("tokens", number(m.tokens_in_rows), m.layout),
            (trained, number(m.tokens.trained), "tokens"),
            ("refused", number(m.rows.rejected), "rows"),
        ],
        [Lost(*one) for one in Counter(m.rows.rejected_by_code).most_common()],
        shards.strips(shards.row(split, 0), most=2, tokens=TOKENS) if split else [],
    )
