"""Progress on a terminal: a line for each phase, redrawn some times a second by an alarm.

The first phase is drawn by hand, since most commands end in it: what draws the others takes longer
to import than an unchanged build takes.
"""

import errno
import importlib
import io
import os
import select
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from pipeline import executors
from pipeline.messages.lines import cells, kept_in_words
from pipeline.messages.progress import START, Follower, Phase
from stages import late

# What they draw with takes longer to import than most commands take.
_cells, _console, _live, _text = (
    late.module(f"rich.{name}") for name in ("cells", "console", "live", "text")
)
EVERY = 0.2  # seconds between two frames
_SOON = 0.4  # seconds before the first frame: what ends sooner shows nothing
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN = "|/-\\"
_CLEAR = "\r\x1b[K"


def encodes(text: str) -> bool:
    """Whether stderr can show it."""
    try:
        text.encode(sys.stderr.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


class Screen(Follower):
    """Draws on the terminal that stderr is."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._painter: Painter | None = None
        self._spinner = _SPINNER if encodes(_SPINNER) else _PLAIN
        self._by_hand = False  # whether the first phase is on the terminal
        self._busy = False  # an alarm rings at any time, also while a frame is drawn
        self._gone = False  # the terminal

    def changed(self, phase: Phase) -> None:
        """Begin to draw with the first phase that takes its time."""
        if self._painter is None and phase.what != START:
            self._erase()
            self._painter = Painter(marks=encodes("✓✗"))
            self._painter.start()  # an interruption finds it, and closes it
            self.beat()

    @property
    def spinner(self) -> str:
        """The mark of what goes on, at this time."""
        return self._spinner[int(5 * (time.monotonic() - self._began)) % len(self._spinner)]

    def beat(self) -> None:
        """Draw a frame; a terminal that is gone ends the drawing, not the command."""
        if self._busy or self._gone:
            return
        self._busy = True
        try:
            self._draw()
        except OSError:
            self._gone = True
        finally:
            self._busy = False

    def _draw(self) -> None:
        if not self.phases:
            return
        if self._painter is not None:
            self._painter.draw(self.phases, self.spinner)
        elif self.phases[0].seconds > _SOON:
            self._by_hand = True
            line = f"{self.spinner} {START}  {executors.clock(self.phases[0].seconds)}"
            click.echo(f"{_CLEAR}{line}", err=True, nl=False)

    def _erase(self) -> None:
        if self._by_hand:
            self._by_hand = False
            click.echo(_CLEAR, err=True, nl=False)

    def aside(self, text: str) -> None:
        """Above the lines of the phases."""
        busy, self._busy = self._busy, True
        try:
            self._erase()
            if self._painter is None:
                super().aside(text)
            else:
                self._painter.above(text)
        finally:
            self._busy = busy

    def close(self, well: bool) -> None:
        """Leave the last frame, and the cursor below it."""
        self._busy = True
        self._erase()
        if self._painter is not None:
            self._painter.close(self.phases, well)


# The phases as rich draws them: columns that fit the width, and marks; and those of a notebook.

_SHORTER = 6  # ways to say a phase, each shorter than the one before
_GAP = 2
_CELL = 100  # columns


def table(phases: Sequence[Phase], width: int) -> list[str]:
    """The phases in columns, in the longest way that fits."""
    lines: list[str] = []
    for shortened in range(_SHORTER):
        rows = [(phase.what, *cells(phase, shortened)) for phase in phases]
        widths = [max(map(_cells.cell_len, column)) for column in zip(*rows, strict=True)]
        lines = [_line(row, widths) for row in rows]
        if max(map(_cells.cell_len, lines)) <= width:
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
        self._console = _console.Console(stderr=True, highlight=False)
        self._live = _live.Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def start(self) -> None:
        """Take the terminal, until ``close``."""
        self._live.start()

    def frame(self, phases: Sequence[Phase], last: Any) -> Any:
        """The lines.

        Args:
            last: the mark of the phase that goes on.
        """
        lines = []
        for phase, text in zip(phases, table(phases, self._console.width - 2), strict=True):
            ended = phase is not phases[-1]
            mark = _text.Text(self._good, "green") if ended else last
            line = _text.Text.assemble(mark, " ", (text, "dim" if ended else ""))
            line.no_wrap, line.overflow = True, "crop"
            lines.append(line)
            kept = kept_in_words(phase)
            if kept:
                note = _text.Text(f"  {' ' * (len(phase.what) + _GAP)}{kept}", "dim")
                note.no_wrap, note.overflow = True, "ellipsis"
                lines.append(note)
        return _console.Group(*lines)

    def draw(self, phases: Sequence[Phase], spinner: str) -> None:
        """One frame."""
        self._live.update(self.frame(phases, _text.Text(spinner, "cyan")), refresh=True)

    def above(self, text: str) -> None:
        """A line above."""
        self._console.print(text, markup=False, soft_wrap=True)

    def close(self, phases: Sequence[Phase], well: bool) -> None:
        """Draw the last frame and give the cursor back, also where ``start`` was interrupted."""
        mark = _text.Text(self._good, "green") if well else _text.Text(self._bad, "red")
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


class Cell(Follower):
    """Draws in the output of the cell that is run; IPython, which runs it, shows it."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._drawn = 0.0

    def changed(self, phase: Phase) -> None:
        """Draw; not every piece of a phase that goes on."""
        now = time.monotonic()
        if phase.ended is None and now - self._drawn < EVERY:
            return
        self._drawn = now
        shown = {"text/plain": "\n".join(table(self.phases, _CELL))}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


# stdout and stderr of a command: that nobody reads them, or that they are full, stops no work.
#
# What cannot be written is dropped from there on, so a command ends as if all had been read. Only a
# stdout that is full, on a disk say, is an error, when the command has ended (``require_written``).


class _Stream(io.FileIO):
    """Writes to a descriptor, and raises nothing.

    Attributes:
        error: what the system said first; nothing is written after it.
    """

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            while self.error is None:
                written: int | None = super().write(data)
                if written is not None:
                    return written
                select.select((), (self,), ())  # its reader is slow, and it does not wait by itself
        except OSError as error:
            self.error = error
        return memoryview(data).nbytes


_opened: dict[str, _Stream] = {}


def guard() -> None:
    """Let both streams be written to like that; where one is closed, nobody reads it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # or a file that is opened later would get its number, and what is printed
            os.open(os.devnull, os.O_RDWR)
    for number, name in ((1, "stdout"), (2, "stderr")):
        old, raw = getattr(sys, name), _Stream(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=getattr(old, "encoding", None),
            errors=getattr(old, "errors", "replace"),
            line_buffering=number == 2 or raw.isatty(),
        )
        setattr(sys, name, stream)
        _opened[name] = raw


def require_written() -> None:
    """Raises OSError where stdout was to be read, and could not be written."""
    sys.stdout.flush()
    error = _opened["stdout"].error
    if error is not None and error.errno != errno.EPIPE:
        raise error
