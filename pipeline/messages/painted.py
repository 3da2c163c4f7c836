"""The phases as rich draws them: columns that fit the width, and marks; and those of a notebook."""

import importlib
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.messages.lines import cells, kept_in_words
from pipeline.messages.progress import Follower, Phase

_SHORTER = 6  # ways to say a phase, each shorter than the one before
_GAP = 2
_EVERY = 0.2  # seconds between two drawings of a phase that goes on
_CELL = 100  # columns


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
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
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


def in_notebook() -> bool:
    """Whether this process is a kernel that Jupyter, VS Code or Colab shows outputs of."""
    return "ipykernel" in sys.modules


class Cell(Follower):
    """Draws in the output of the cell that is run; IPython, which runs it, shows it."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None
        self._drawn = 0.0

    def changed(self, phase: Phase) -> None:
        """Draw; not every piece of a phase that goes on."""
        now = time.monotonic()
        if phase.ended is None and now - self._drawn < _EVERY:
            return
        self._drawn = now
        shown = {"text/plain": "\n".join(table(self.phases, _CELL))}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
