"""Shows what a build is doing, on stderr: one line that is rewritten, or lines of JSON."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import click

EVERY = 10.0  # seconds between two lines of a phase
LEVELS = ("info", "warning", "error")


def log(event: str, content: Mapping[str, Any], level: str = "info") -> None:
    """One line of JSON: when, what, how serious, and what belongs to it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"time": now, "level": level, "event": event, **content}
    click.echo(json.dumps(line, ensure_ascii=False), err=True)


@dataclass(slots=True)
class _Phase:
    """A phase that is going on.

    Attributes:
        rows: of what is done, where workers say them; 0 where they do not.
        began: when, by the monotonic clock.
    """

    what: str
    done: int = 0
    total: int = 0
    rows: int = 0
    began: float = field(default_factory=lambda: time.monotonic())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> int:
        """Rows per second."""
        return round(self.rows / max(self.seconds, 1e-3))


class _Follower:
    """Knows the phase that is going on."""

    def __init__(self) -> None:
        self._phase: _Phase | None = None

    def _at(self, what: str, done: int, total: int) -> _Phase:
        if self._phase is None or self._phase.what != what or done < self._phase.done:
            self._phase = _Phase(what)
        self._phase.done, self._phase.total = done, total
        return self._phase

    def count_rows(self, rows: int) -> None:
        """So many more rows of the phase are done."""
        if self._phase is not None:
            self._phase.rows += rows


class Bar(_Follower):
    """A progress line that is rewritten in place, at most ten times a second."""

    open = False  # whether there is such a line on the terminal

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        phase = self._at(what, done, total)
        now = time.monotonic()
        if now - self._last > 0.1 or done == total:
            self._last = now
            line = f"{what:<8} {done}/{total}"
            if phase.rows:
                line += f"  {phase.rows:,} rows, {phase.rate:,} rows/s"
            blank = " " * (self._width - len(line))  # over what the line before had more
            self._width = len(line)
            Bar.open = done != total
            click.echo(f"\r{line}{blank}", err=True, nl=not Bar.open)


def aside(text: str) -> None:
    """A line on stderr, beside a progress line that may be there."""
    click.echo(f"\n{text}" if Bar.open else text, err=True)
    Bar.open = False


class Log(_Follower):
    """One line of JSON when a phase ends, and one every ten seconds while it goes on."""

    def __call__(self, what: str, done: int, total: int) -> None:
        self._at(what, done, total)
        if done == total:
            self.tell()
            self._phase = None

    def tell(self) -> None:
        """How far the phase is; nothing between two phases."""
        phase = self._phase
        if phase is None:
            return
        seconds = round(phase.seconds, 3)
        content = {"phase": phase.what, "done": phase.done, "total": phase.total}
        rows = {"rows": phase.rows, "rows_per_second": phase.rate} if phase.rows else {}
        log("phase", {**content, **rows, "seconds": seconds})


@contextmanager
def beating(report: Log) -> Iterator[None]:
    """Tell how far a phase is every ten seconds, also while nothing gets finished.

    By an alarm, not a thread: a process with threads cannot be copied, and workers are copies.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(_: int, __: FrameType | None) -> None:
        report.tell()

    before = signal.signal(signal.SIGALRM, told)
    signal.siginterrupt(signal.SIGALRM, False)  # libraries that do not repeat a call go on
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def silent(what: str, done: int, total: int) -> None:
    """Shows nothing."""


def reporter(quiet: bool) -> Callable[[str, int, int], None]:
    """A progress line on a terminal; elsewhere nothing."""
    return Bar() if sys.stderr.isatty() and not quiet else silent
