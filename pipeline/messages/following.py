"""Who shows the progress of a command: JSON lines, a terminal, text lines every ten seconds, or
nobody."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline.messages import lines, progress
from pipeline.messages.progress import Follower
from pipeline.messages.session import Session


@contextmanager
def beating(report: Follower, every: float) -> Iterator[None]:
    """Have a report show that time passes, also while nothing gets finished.

    By an alarm, not a thread: a process with threads cannot be copied, and workers are copies.
    Elsewhere than in the main thread nothing beats. An alarm of somebody else waits meanwhile.

    Args:
        every: so many seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(_: int, __: FrameType | None) -> None:
        report.beat()

    before = signal.signal(signal.SIGALRM, told)
    signal.siginterrupt(signal.SIGALRM, False)  # libraries that do not repeat a call go on
    theirs = signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *theirs)


def _for(session: Session, quiet: bool) -> tuple[Follower, float]:
    """Who shows it, and after how many seconds again."""
    if quiet:
        return Follower(), 0
    if session.in_lines:
        return lines.Log(), lines.EVERY
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from pipeline.messages import screen

        return screen.Screen(), screen.EVERY
    return lines.Lines(), lines.EVERY


@contextmanager
def following(session: Session, quiet: bool) -> Iterator[Follower]:
    """What shows progress until the block ends, as the session wants it."""
    report, every = _for(session, quiet)
    progress.open_now.append(report)
    well = False
    try:
        if every:
            with beating(report, every):
                yield report
        else:
            yield report
        well = True
    finally:
        progress.open_now.remove(report)
        report.close(well)
