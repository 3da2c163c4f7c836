"""Progress on a terminal: a line for each phase, redrawn some times a second by an alarm."""

import errno
import importlib
import io
import os
import select
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from pipeline.messages.lines import cells, kept_in_words
from pipeline.messages.progress import START, Follower, Phase
from stages import late

_cells = late.module("rich.cells")  # an unchanged build ends before anything is drawn
EVERY = 0.2  # seconds between two frames
_SOON = 0.4  # seconds before the first frame: what ends sooner shows nothing
# What turns while a phase goes on; the marks of one that ended well, and of one that did not.
_MARKS, _PLAIN = ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "✓", "✗"), ("|/-\\", "+", "x")
_CLEAR, _ABOVE = "\r\x1b[2K", "\x1b[1A\x1b[2K"  # this line; the one above it
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def _encoded(text: str) -> bool:
    """Whether stderr can show it."""
    try:
        text.encode(sys.stderr.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _put(text: str) -> None:
    click.echo(text, err=True, nl=False)


def _styled(text: str, **how: Any) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, **how)


def _size() -> tuple[int, int]:
    """Columns and lines of the terminal, which stdout need not be."""
    try:
        size = os.get_terminal_size(2)
    except OSError:  # it is gone
        size = os.terminal_size((0, 0))
    width, height = shutil.get_terminal_size(size)
    return width or 80, height


class Screen(Follower):
    """Draws on the terminal that stderr is."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._spinner, self._good, self._bad = _MARKS if _encoded("".join(_MARKS)) else _PLAIN
        self._taken = False  # the terminal, by the first phase that takes its time
        self._lines = 0  # of the frame that is on the terminal
        self._busy = False  # an alarm rings at any time, also while a frame is drawn

    def changed(self, phase: Phase) -> None:
        """Begin to draw with the first phase that takes its time."""
        if not self._taken and phase.what != START:
            self._taken = True  # an interruption finds it, and gives the terminal back
            _put(_HIDE)
            self.beat()

    def beat(self) -> None:
        """Draw a frame."""
        if self._busy or not (self._taken or (self.phases and self.phases[0].seconds > _SOON)):
            return
        self._busy = True
        at = int(5 * (time.monotonic() - self._began)) % len(self._spinner)
        self._draw(_styled(self._spinner[at], fg="cyan"))
        self._busy = False

    def _draw(self, last: str) -> None:
        """A frame over the one before.

        Args:
            last: the mark of the phase that goes on.
        """
        width, height = _size()
        lines = []
        for phase, text in zip(self.phases, table(self.phases, width - 2), strict=True):
            ended = phase is not self.phases[-1]
            mark = _styled(self._good, fg="green") if ended else last
            lines.append(f"{mark} {_styled(text[: width - 2], dim=ended or None)}")
            if kept := kept_in_words(phase):
                note = f"  {' ' * (len(phase.what) + _GAP)}{kept}"
                lines.append(_styled(note[:width], dim=True))
        lines = lines[-height:] if self.phases[-1].ended is None else lines
        erased, self._lines = self._erased(), len(lines)
        _put(erased + "\n".join(lines))

    def _erased(self) -> str:
        """What takes the last frame from the terminal."""
        lines, self._lines = self._lines, 0
        return _CLEAR + _ABOVE * (lines - 1) if lines else ""

    def aside(self, text: str) -> None:
        """Above the lines of the phases, which the next beat draws again."""
        busy, self._busy = self._busy, True
        super().aside(f"{self._erased()}{text}")
        self._busy = busy

    def close(self, well: bool) -> None:
        """Leave the last frame, and the cursor below it; nothing of what ended sooner."""
        self._busy = True
        if self._taken:
            self._draw(_styled(self._good, fg="green") if well else _styled(self._bad, fg="red"))
            _put(f"\n{_SHOW}")
        else:
            _put(self._erased())


# The phases in columns that fit the width, on a terminal and in a notebook.

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
