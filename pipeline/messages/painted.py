"""The lines of phases as rich draws them: columns that fit the width, and marks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline import amounts
from pipeline.messages.progress import Follower, Phase
from stages.errors import counted

_SHORTER = 6  # ways to say a phase, each shorter than the one before
_GAP = 2


def cells(phase: Phase, shortened: int) -> tuple[str, ...]:
    """What a phase says: its share, rows, rows/s, tokens/s, what was refused, and its time.

    Args:
        shortened: 0 for all of it; below ``_SHORTER``.
    """
    whole, so_far = phase.whole, phase.so_far
    share, left = phase.share, phase.left
    shown = "" if share is None else amounts.percent(share)
    if whole is not None and whole.one_round and phase.ended is None:
        shown = f"{phase.done} of {phase.total}"
    rows = rates = tokens = refused = ""
    if whole is not None:
        if shown and whole.in_bytes and shortened < 1:
            shown += f" of {amounts.bytes_in_words(whole.size)}"
        rows = counted(so_far.rows, whole.row)
        if shortened > 1:
            rows = f"{amounts.short(so_far.rows)} {rows.rpartition(' ')[2]}"
        rows = rows if so_far.rows and shortened < 5 else ""
        if phase.made.rows and shortened < 4:
            rates = f"{_rate(phase.rows_per_second, shortened)} {whole.row}s/s"
        if phase.made.tokens and shortened < 3:
            tokens = f"{_rate(phase.tokens_per_second, shortened)} tokens/s"
        refused = f"{so_far.refused:,} refused" if whole.in_bytes and so_far.rows else ""
    time = amounts.clock(phase.seconds) if left is None else f"{amounts.clock(left)} left"
    return shown, rows, rates, tokens, refused, time


def _rate(number: int, shortened: int) -> str:
    return f"{number:,}" if shortened < 1 else amounts.short(number)


def table(phases: Sequence[Phase], width: int) -> list[str]:
    """The phases in columns, in the longest way that fits."""
    lines: list[str] = []
    for shortened in range(_SHORTER):
        rows = [(phase.what, *cells(phase, shortened)) for phase in phases]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        if max(map(cell_len, lines)) <= width:
            break
    return lines


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names from the left, figures from the right; an empty column takes no room."""
    padded = [row[0].ljust(widths[0])]
    padded += [one.rjust(size) for one, size in zip(row[1:], widths[1:], strict=True) if size]
    return (" " * _GAP).join(padded).rstrip()


class Painter:
    """Draws the phases on stderr; nothing in it starts a thread.

    Args:
        marks: the terminal shows other marks than those of ASCII.
    """

    def __init__(self, marks: bool = True) -> None:
        self._good, self._bad = ("✓", "✗") if marks else ("+", "x")
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        """Take the terminal, until ``close``."""
        self._live.start()

    def frame(self, phases: Sequence[Phase], last: Text) -> Group:
        """The lines.

        Args:
            last: the mark of the phase that goes on.
        """
        lines = []
        texts = table(phases, self._console.width - 2)
        for phase, text in zip(phases, texts, strict=True):
            ended = phase is not phases[-1]
            mark = Text(self._good, "green") if ended else last
            line = Text.assemble(mark, " ", (text, "dim" if ended else ""))
            line.no_wrap, line.overflow = True, "crop"
            lines.append(line)
            kept = kept_in_words(phase)
            if kept:
                note = Text(f"  {' ' * (len(phase.what) + _GAP)}{kept}", "dim")
                note.no_wrap, note.overflow = True, "ellipsis"
                lines.append(note)
        return Group(*lines)

    def draw(self, phases: Sequence[Phase], spinner: str) -> None:
        """One frame."""
        self._live.update(self.frame(phases, Text(spinner, "cyan")), refresh=True)

    def above(self, text: str) -> None:
        """A line above."""
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self, phases: Sequence[Phase], well: bool) -> None:
        """Draw the last frame and give the cursor back, also where ``start`` was interrupted."""
        mark = Text(self._good, "green") if well else Text(self._bad, "red")
        try:
            if phases:
                self._live.update(self.frame(phases, mark), refresh=False)
            with suppress(IndexError):  # it had begun, and could not end, to start
                self._live.stop()
        except OSError:  # the terminal is gone
            return
        finally:
            with suppress(OSError):
                self._console.show_cursor(True)


# Progress as lines on stderr: of JSON, or of text where stderr is no terminal.


EVERY = 10.0  # seconds between two lines of a phase


def log(event: str, content: Mapping[str, Any], level: str = "info") -> None:
    """One line of JSON: when, what, how serious, and what belongs to it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"time": now, "level": level, "event": event, **content}
    click.echo(json.dumps(line, ensure_ascii=False), err=True)


class Log(Follower):
    """One line of JSON when a phase ends, and one every ten seconds while it goes on."""

    def changed(self, phase: Phase) -> None:
        """A line when it ends."""
        if phase.ended is not None:
            self._tell(phase)

    def beat(self) -> None:
        """How far the phase is; nothing between two phases."""
        if self.phases and self.phases[-1].ended is None:
            self._tell(self.phases[-1])

    def _tell(self, phase: Phase) -> None:
        log(
            "phase",
            {"phase": phase.what, "done": phase.done, "total": phase.total} | _counts(phase),
        )


def _counts(phase: Phase) -> dict[str, Any]:
    """What is known of a phase; a key without a value is left out."""
    so_far, share, left = phase.so_far, phase.share, phase.left
    found = {
        "rows": so_far.rows,
        "rows_per_second": phase.rows_per_second,
        "tokens": so_far.tokens,
        "tokens_per_second": phase.tokens_per_second,
        "refused": so_far.refused,
        "kept": phase.kept_pieces,
        "share": None if share is None else round(share, 4),
        "seconds_left": None if left is None else round(left),
    }
    known = {name: value for name, value in found.items() if value}
    return {**known, "seconds": round(phase.seconds, 3)}


class Lines(Follower):
    """One line every ten seconds, and one at the end of a phase that had one."""

    def __init__(self) -> None:
        super().__init__()
        self._told: Phase | None = None

    def changed(self, phase: Phase) -> None:
        """A line at the end of a phase that was told of."""
        told = self._told
        if told is not None and told.ended is not None:
            self._told = None
            click.echo(line_of(told), err=True)

    def beat(self) -> None:
        """How far the phase is."""
        if self.phases and self.phases[-1].ended is None:
            self._told = self.phases[-1]
            click.echo(line_of(self._told), err=True)


def line_of(phase: Phase) -> str:
    """A phase in one line."""
    so_far, share, whole = phase.so_far, phase.share, phase.whole
    ended = phase.ended is not None
    parts = [f"done in {amounts.span(phase.seconds)}" if ended else amounts.span(phase.seconds)]
    if whole is not None and not ended and share is not None:
        of = f" of {amounts.bytes_in_words(whole.size)}" if whole.in_bytes else ""
        parts.append(f"{amounts.percent(share)}{of}")
    if whole is not None and whole.one_round and not ended:
        parts.append(f"{phase.done} of {phase.total}")
    if whole is not None and so_far.rows:
        parts.append(counted(so_far.rows, whole.row))
    if phase.made.rows:
        parts.append(f"{phase.rows_per_second:,} {whole.row if whole else 'row'}s/s")
    if phase.made.tokens:
        parts.append(f"{phase.tokens_per_second:,} tokens/s")
    if so_far.rows and whole is not None and whole.in_bytes:
        parts.append(f"{so_far.refused:,} refused")
    parts += [kept] if (kept := kept_in_words(phase)) else []
    if phase.left is not None:
        parts.append(f"{amounts.span(phase.left)} left")
    return f"{phase.what:<9} {', '.join(parts)}"


def kept_in_words(phase: Phase) -> str:
    """The pieces that were not made again; empty where all are made."""
    if not phase.kept_pieces:
        return ""
    every = phase.kept_pieces == phase.total
    of = f"all {phase.total}" if every else f"{phase.kept_pieces} of {phase.total}"
    return f"{of} parts were there before"
