"""Shows what a build is doing, on stderr: one line that is rewritten, or lines of JSON."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


class Bar:
    """A progress line that is rewritten in place, at most ten times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last > 0.1 or done == total:
            self._last = now
            end = "\n" if done == total else ""
            click.echo(f"\r{what:<8} {done}/{total}", err=True, nl=False)
            click.echo(end, err=True, nl=False)


class Log:
    """One line of JSON when a phase ends, and one every ten seconds while it goes on."""

    def __init__(self) -> None:
        self._phase: tuple[str, int, int] | None = None
        self._began = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._phase is None or self._phase[0] != what:
            self._began = time.monotonic()
        self._phase = (what, done, total)
        if done == total:
            self.tell()
            self._phase = None

    def tell(self) -> None:
        """How far the phase is; nothing between two phases."""
        if self._phase is None:
            return
        what, done, total = self._phase
        seconds = round(time.monotonic() - self._began, 3)
        log("phase", {"phase": what, "done": done, "total": total, "seconds": seconds})


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
