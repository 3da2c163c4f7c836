"""Draws sequences of tokens: on a terminal, their kinds as colours or as words; and as HTML.

Lines of a terminal are broken between words, never inside one: a word longer than a line stays
whole. Text of scripts that are written without blanks is broken between wide characters, which take
two columns each.
"""

import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import click
from markupsafe import Markup, escape

from pipeline import lines, tasks
from pipeline.builds.build import Build
from pipeline.report import drawing, headline
from pipeline.report.headline import number
from stages.errors import counted
from stages.findings import Audits

_S = TypeVar("_S")
_UNIT = re.compile(r"\n| +|[^ \n]+")
MARKS = "│⟩"  # end a token where its boundaries are drawn; a line may be broken behind one


def _units(text: str) -> Iterator[tuple[str, bool]]:
    """Line ends, blanks and pieces of words, and whether a line may be broken behind each."""
    from rich.cells import cell_len  # a page of HTML is drawn without

    for unit in _UNIT.findall(text):
        if unit.isascii():
            yield unit, unit.isspace()
            continue
        start = 0
        for at, character in enumerate(unit):
            if character in MARKS or cell_len(character) == 2:
                yield unit[start : at + 1], True
                start = at + 1
        if start < len(unit):
            yield unit[start:], False


def wrapped(runs: Iterable[tuple[str, _S]], width: int | None) -> Iterator[list[tuple[str, _S]]]:
    """Lines of runs of one style each; a line end in the text stays at the end of its line.

    Args:
        width: columns of a line, None for any number of them.
    """
    from rich.cells import cell_len

    line: list[tuple[str, _S]] = []
    word: list[tuple[str, _S]] = []
    used = longer = 0
    for text, style in runs:
        for unit, ends in _units(text):
            takes = 0 if unit == "\n" else cell_len(unit)
            if width and used and used + longer + takes > width:
                yield line
                line, used = [], 0
            word.append((unit, style))
            longer += takes
            if ends:
                line, used = line + word, used + longer
                word, longer = [], 0
            if unit == "\n":
                yield line
                line, used = [], 0
    if line or word:
        yield line + word


def quoted_word(word: str) -> str:
    """A word as a shell reads it; what a terminal would obey is escaped, as bash and zsh do."""
    if word.isprintable():
        plain = "'" in word and not set(word) & set('"$`\\!')
        return f'"{word}"' if plain else shlex.quote(word)
    escaped = "".join(c if c.isprintable() and c not in "\\'" else _escape(c) for c in word)
    return f"$'{escaped}'"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_STYLES: dict[str, dict[str, Any]] = {
    drawing.CONTEXT: {"dim": True},
    drawing.TRAINED: {"fg": "green"},
    drawing.ANSWER: {"fg": "green"},
    drawing.GOOD: {"fg": "black", "bg": "green", "bold": True},
    drawing.BAD: {"fg": "white", "bg": "red", "bold": True},
    drawing.OPEN: {"fg": "black", "bg": "yellow"},
    drawing.SCORED: {"fg": "black", "bg": "cyan", "bold": True},
    drawing.PADDING: {"fg": "bright_black"},
}
AS_TEXT = "[text: {}]"
_WIDEST = max(map(len, _STYLES))
_HEADING = 78
_LINE_END = "↵"


@dataclass(frozen=True, slots=True)
class Marks:
    """What is drawn of single tokens.

    Attributes:
        boundaries: a line behind each; ``ids``: its id in brackets.
    """

    boundaries: bool = False
    ids: bool = False

    def __bool__(self) -> bool:
        return self.boundaries or self.ids

    def text(self, piece: drawing.TextPiece) -> str:
        """A piece with its mark, which comes before the line end that the piece ends in; the rating
        of a step stands in brackets."""
        text = piece.text if piece.rating is None else f"{piece.text}[{piece.rating:g}]"
        if not self:
            return text
        shown = "".join(f"\\u{ord(c):04x}" if c in "│⟨⟩" else c for c in text)
        shown = shown.replace("\n", f"{_LINE_END}\n")
        own, end = (shown[:-1], "\n") if shown.endswith("\n") else (shown, "")
        return f"{own}⟨{' '.join(map(str, piece.ids))}⟩{end}" if self.ids else f"{own}│{end}"


class Canvas:
    """Writes to stdout, in lines of the terminal's width where it is one (or of ``COLUMNS``).

    Args:
        color: ``always``, ``never`` or ``auto``: a terminal, and no ``NO_COLOR``.
    """

    def __init__(self, color: str, marks: Marks = Marks()) -> None:
        terminal = sys.stdout.isatty()
        wanted = terminal and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        self._color = color == "always" or (color == "auto" and wanted)
        self._marks = marks
        looked_at = terminal or os.environ.get("COLUMNS", "").isdecimal()
        self.width = shutil.get_terminal_size().columns if looked_at else None

    def say(self, text: str, **style: Any) -> None:
        """A sentence, or a heading."""
        shown = drawing.visible(text)
        for line in lines.wrapped(shown, self.width) if self.width else [shown]:
            painted = click.style(line, **style) if self._color and style else line
            click.echo(painted, color=self._color)

    def command(self, label: str, words: Sequence[str]) -> None:
        """A command to copy, behind what it is for."""
        self.say(f"{label}:")
        quoted = [quoted_word(word) for word in words]
        wide = self.width or sum(map(len, quoted)) + 2 * len(quoted)
        click.echo("\n".join(lines.command(quoted, wide)))

    def draw(self, title: str, strips: Sequence[drawing.Strip]) -> None:
        """Sequences, one under the other."""
        self.say(title, bold=True)
        if self._color:
            self._legend({piece.kind for strip in strips for piece in strip.pieces})
        for strip in strips:
            counts = f"{counted(strip.tokens, 'token')}, {strip.trained:,} trained"
            if any(piece.kind == drawing.SCORED for piece in strip.pieces):
                counts = counted(strip.tokens, "token")
            name = drawing.visible(strip.name).replace("\n", "\\n")
            wide = min(_HEADING, self.width or _HEADING)
            self.say(f"── {name} · {counts} ".ljust(wide, "─"), fg="blue")
            for line in self._colored(strip) if self._color else self._worded(strip):
                click.echo(line, color=self._color)
        click.echo()

    def _legend(self, present: set[str]) -> None:
        items = [(f" {drawing.KINDS[kind]} ", kind) for kind in drawing.KINDS if kind in present]
        line, used = "", 0
        for text, kind in items:
            if used and self.width and used + 2 + len(text) > self.width:
                click.echo(line, color=True)
                line, used = "", 0
            line += ("  " if used else "") + click.style(text, **_STYLES[kind])
            used += len(text) + 2 * (used > 0)
        click.echo(line, color=True)

    def _colored(self, strip: drawing.Strip) -> Iterator[str]:
        for line in wrapped(self._runs(strip), self.width):
            parts = groupby(line, key=lambda unit: unit[1])
            texts = (("".join(text for text, _ in units), style) for style, units in parts)
            # A style that reached over a line's end would paint the rest of the line.
            yield "".join(_painted(text.rstrip("\n"), style) for text, style in texts)

    def _runs(self, strip: drawing.Strip) -> Iterator[tuple[str, tuple[str, bool, bool]]]:
        """Text of one style each: its kind, and whether it is a control token, or looks like it."""
        for style, run in groupby(strip.pieces, key=lambda p: (p.kind, p.control, p.spelled)):
            yield self._text(run), style

    def _text(self, pieces: Iterable[drawing.TextPiece]) -> str:
        """Pieces as one text; text that only looks like a control token is put in brackets."""
        runs = groupby(pieces, key=lambda piece: piece.spelled)
        texts = ((spelled, "".join(map(self._marks.text, run))) for spelled, run in runs)
        return "".join(AS_TEXT.format(text) if spelled else text for spelled, text in texts)

    def _worded(self, strip: drawing.Strip) -> Iterator[str]:
        """Lines of text, with the kind's name before the first line of each run of one kind."""
        width = None if self.width is None else max(self.width - _WIDEST - len(" | "), 1)
        end = "" if self._marks else _LINE_END
        for kind, run in groupby(strip.pieces, key=lambda piece: piece.kind):
            head = kind
            for line in wrapped([(self._text(run), kind)], width):
                text = "".join(one for one, _ in line)
                yield f"{head:<{_WIDEST}} | {text.rstrip(chr(10))}" + end * (text[-1:] == "\n")
                head = ""


def _painted(text: str, style: tuple[str, bool, bool]) -> str:
    kind, control, spelled = style
    painted = dict(_STYLES[kind])
    if control and kind in (drawing.CONTEXT, drawing.TRAINED):
        painted |= {"underline": True}
    painted |= {"fg": "yellow"} if spelled else {}
    return click.style(text, **painted) if text else ""


# What a notebook shows of a build or a plan: its verdict, its counts, what was refused, one row.
#
# It is a fragment of HTML in the colours of the report, without scripts; every text of the data is
# escaped.
TOKENS = 200  # of a sequence
CODES = 5  # of refused rows


def boxes(strip: drawing.Strip) -> Markup:
    """The tokens of a sequence: a span for each run of one kind, a box for each token.

    Spelled here, since a template takes longer for the thousands of them.
    """
    last, missing = strip.left_out
    gap = f'<span class="cut"> … {headline.counted(missing, "token")} left out … </span>'
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


class Lost(NamedTuple):
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
