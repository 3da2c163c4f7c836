"""How one command talks, and the one place where it ends: people, machines, whom it notifies.

It is made from the raw arguments: an error in these must be told in the way that they ask for.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import click

from pipeline.messages import lines, progress
from pipeline.messages.progress import Follower
from pipeline.messages.result import FAILED, REFUSED, Result
from pipeline.secrets import note_address, shown

if TYPE_CHECKING:
    import subprocess


def _value(arguments: Sequence[str], option: str) -> str | None:
    """The last value that an option is given."""
    found = None
    for at, word in enumerate(arguments):
        if word == option and at + 1 < len(arguments):
            found = arguments[at + 1]
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found


@dataclass
class Session:
    """One command.

    Attributes:
        in_json: stdout gets one object, whatever happens (``--json``).
        in_lines: stderr gets lines of JSON (``--log-format json``).
        debug: an exception is shown as a traceback.
        trust: a recipe may say what runs (``--trust``).
        notify: a shell command that gets the result of a build.
        paths: what the command writes, as far as is known.
        arguments: all of them.
    """

    in_json: bool = False
    in_lines: bool = False
    debug: bool = False
    trust: bool = False
    notify: str | None = None
    paths: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ended: bool = False

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Session":
        """The session that a command's arguments ask for; no other option is looked at."""
        words = list(arguments)
        own = words[: words.index("--")] if "--" in words else words
        for word in words:
            note_address(word)
        return cls(
            in_json="--json" in own,
            in_lines=_value(own, "--log-format") == "json",
            debug="--debug" in own,
            trust="--trust" in own,
            notify=_value(own, "--notify"),
            arguments=tuple(words),
        )

    def begin(self, in_json: bool, notify: str | None = None) -> None:
        """What only the command's own options, or a recipe, say of it."""
        self.in_json |= in_json
        self.notify = self.notify or notify

    def print_path(self, result: Result) -> None:
        """Where the manifest of a build that is there is, unless an object says it."""
        if not self.in_json and result.manifest is not None:
            click.echo(result.paths["manifest"])

    def warn(self, text: str) -> None:
        """A sentence that changes nothing about the result."""
        text = shown(text)
        if self.in_lines:
            lines.log("warning", {"message": text}, level="warning")
        else:
            progress.aside(f"warning: {text}")

    def end(self, result: Result) -> None:
        """Print the object, or where the manifest is; log the last line, notify. The second time
        nothing."""
        if self.ended:
            return
        self.ended = True
        described = json.dumps(result.described(), ensure_ascii=False, default=str)
        if self.in_json:
            click.echo(described)
        self.print_path(result)
        if self.in_lines:
            level = "error" if result.status in (FAILED, REFUSED) else "info"
            lines.log("end", result.without_manifest(), level=level)
        if self.notify:
            wrong = notified(self.notify, described + "\n")
            if wrong is not None:
                self.warn(wrong)


def current() -> Session:
    """The session of the command that is running; one that says nothing special outside of one."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Session) if context is not None else None
    return found or Session()


# The command of ``--notify``, or of a recipe's ``notify``, gets the result as its input. It is told
# how a build ended, and has no say in it: if it fails, that is a warning.


SECONDS = 60  # that the command may take


def notified(command: str, text: str, seconds: float = SECONDS) -> str | None:
    """Run a shell command with a text on its standard input; its own output is not shown.

    Returns:
        What went wrong, as a sentence; None if nothing did.
    """
    import subprocess  # few builds notify anybody

    try:
        process = subprocess.Popen(
            command,
            shell=True,  # it is the user's own line, as in a crontab
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
    except OSError as error:
        return f"The notify command could not be started: {error}."
    try:
        _, said = process.communicate(text, timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"The notify command did not end within {seconds:g} seconds and was stopped."
    except KeyboardInterrupt:
        _kill(process)
        return "The notify command was interrupted."
    if process.returncode == 0:
        return None
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    return f"The notify command ended with status {process.returncode}: {last[0]}"


def _kill(process: "subprocess.Popen[str]") -> None:
    """End the shell and all that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stderr):
        with suppress(OSError):  # what was not read is written once more when a pipe is closed
            assert pipe is not None
            pipe.close()
    process.wait()


# Who shows the progress of a command: JSON lines, a terminal, text lines every ten seconds, or
# nobody.


@contextmanager
def beating(report: Follower, every: float) -> Iterator[None]:
    """Have a report show that time passes, also while nothing gets finished.

    By an alarm, not a thread: a process with threads cannot be copied, and workers are copies.
    Elsewhere than in the main thread nothing beats. An alarm of somebody else waits meanwhile.

    Args:
        every: so many seconds; never if 0.
    """
    if not every or threading.current_thread() is not threading.main_thread():
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
        with beating(report, every):
            yield report
        well = True
    finally:
        progress.open_now.remove(report)
        report.close(well)
