"""Progress on a terminal: a line for each phase, redrawn some times a second by an alarm.

The first phase is drawn by hand, since most commands end in it: what draws the others takes longer
to import than an unchanged build takes.
"""

import errno
import io
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pipeline import executors
from pipeline.messages.progress import START, Follower, Phase

if TYPE_CHECKING:
    from pipeline.messages.painted import Painter

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
            from pipeline.messages.painted import Painter

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
