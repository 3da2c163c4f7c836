"""The lines of phases as rich draws them: columns that fit the width, and marks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline import amounts
from pipeline.messages.lines import kept_in_words
from pipeline.messages.progress import Phase
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
