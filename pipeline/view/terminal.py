"""Prints sequences of tokens on a terminal: their kinds as colours, or as words without colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import click

from pipeline import tasks
from pipeline.view.drawing import (
    ANSWER,
    BAD,
    CONTEXT,
    GOOD,
    KINDS,
    OPEN,
    PADDING,
    SCORED,
    TRAINED,
    Shards,
    Strip,
    TextPiece,
    visible,
)

_STYLES: dict[str, dict[str, Any]] = {
    CONTEXT: {"dim": True},
    TRAINED: {"fg": "green"},
    ANSWER: {"fg": "green"},
    GOOD: {"fg": "black", "bg": "green", "bold": True},
    BAD: {"fg": "white", "bg": "red", "bold": True},
    OPEN: {"fg": "black", "bg": "yellow"},
    SCORED: {"fg": "black", "bg": "cyan", "bold": True},
    PADDING: {"fg": "bright_black"},
}
AS_TEXT = "[text: {}]"
_WIDEST = max(map(len, _STYLES))


class Canvas:
    """Writes to stdout.

    Args:
        color: ``always``, ``never`` or ``auto``: a terminal, and no ``NO_COLOR``.
    """

    def __init__(self, color: str) -> None:
        capable = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        wanted = capable and not os.environ.get("NO_COLOR")
        self._color = color == "always" or (color == "auto" and wanted)

    def _say(self, text: str, **style: Any) -> None:
        click.echo(click.style(text, **style) if self._color else text, color=self._color)

    def example(self, shards: Shards, row_id: str) -> None:
        """One example, wherever it is stored."""
        split, number, place = shards.find(row_id)
        strips = shards.strips(shards.row(split, number))
        of = "" if len(strips) == 1 else f", {place + 1} of {len(strips)} in it"
        if tasks.kind_of(shards.build.manifest.task).compares:
            of, chosen = "", strips
        else:
            chosen = [strips[place]]
        self._draw(f"{split} row {number}{of}", chosen)

    def stored(self, shards: Shards, split: str, number: int) -> None:
        """One stored row with all that is in it."""
        strips = shards.strips(shards.row(split, number))
        count = shards.build.splits[split].record.rows
        self._draw(f"{split} row {number} of {count}", strips)

    def _draw(self, title: str, strips: list[Strip]) -> None:
        self._say(title, bold=True)
        present = {piece.kind for strip in strips for piece in strip.pieces}
        if self._color:
            legend = [click.style(f" {KINDS[k]} ", **_STYLES[k]) for k in KINDS if k in present]
            click.echo("  ".join(legend), color=True)
        for strip in strips:
            counts = f"{strip.tokens} tokens, {strip.trained} trained"
            if any(piece.kind == SCORED for piece in strip.pieces):
                counts = f"{strip.tokens} tokens"
            self._say(f"── {visible(strip.name)} · {counts} ".ljust(78, "─"), fg="blue")
            if self._color:
                click.echo("".join(self._colored(strip)), color=True)
            else:
                for line in _worded(strip):
                    click.echo(line)
        click.echo()

    def _colored(self, strip: Strip) -> Iterator[str]:
        for kind, run in groupby(strip.pieces, key=lambda piece: piece.kind):
            for (control, spelled), part in groupby(run, key=lambda p: (p.control, p.spelled)):
                text = _text(part)
                style = dict(_STYLES[kind])
                if control and kind in (CONTEXT, TRAINED):
                    style |= {"underline": True}
                style |= {"fg": "yellow"} if spelled else {}
                # A style that reached over a line's end would paint the rest of the line.
                parts = text.split("\n")
                yield "\n".join(click.style(p, **style) if p else "" for p in parts)


def _text(pieces: Iterable[TextPiece]) -> str:
    """Pieces as one text; text that only looks like a control token is put in brackets."""
    runs = groupby(pieces, key=lambda piece: piece.spelled)
    texts = ((spelled, "".join(piece.text for piece in run)) for spelled, run in runs)
    return "".join(AS_TEXT.format(text) if spelled else text for spelled, text in texts)


def _worded(strip: Strip) -> Iterator[str]:
    """Lines of text, with the kind's name before the first line of each run of one kind."""
    for kind, run in groupby(strip.pieces, key=lambda piece: piece.kind):
        first = True
        for line in _text(run).splitlines(keepends=True):
            head = kind if first else ""
            first = False
            yield f"{head:<{_WIDEST}} | {line.rstrip(chr(10))}" + ("↵" if line[-1] == "\n" else "")
