"""The user's own command, corrected as a remedy says: one for each way that it offers."""

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from pipeline.messages import lines, progress
from pipeline.messages.session import Session
from pipeline.options import command_line
from pipeline.options.many_values import Pairs
from pipeline.options.values import Switch
from pipeline.options.ways import FLAGS, TASK, Way, ways
from pipeline.secrets import GAP, named, redacted

_COMMANDS = ("run", "plan", "init", "stage", "parts", "shards", "commit", "build")


def commands(arguments: Sequence[str], remedy: str) -> list[str]:
    """Commands that can be pasted, one for each way on; none where that cannot be said.

    Args:
        arguments: of the command that stopped, without the program's name.
    """
    given = list(arguments)
    if not given or given[0] not in _COMMANDS:
        return []
    found = []
    for way in ways(remedy):
        words = _with(given, way)
        if words:
            found.append(named(shlex.join(["pipeline", *map(_shortened, words)])))
    return list(dict.fromkeys(found))


def _shortened(word: str) -> str:
    """An argument whose address has gaps to fill in; a sentence with an address stays one."""
    return word if re.search(r"\s", word.partition("://")[0]) else redacted(word, GAP)


def reads_stdin(command: str) -> bool:
    """Whether rows have to be piped into a command again: its standard input has been read."""
    words = shlex.split(command)
    for before, word in pairwise(words):
        option = FLAGS.get(before)
        if word == "-" and (option is None or isinstance(option.value, Switch)):
            return True
    return False


def _with(given: list[str], way: Way) -> list[str]:
    """The arguments with one way's options in place of what they say otherwise.

    Empty where a recipe has several values of the option: those of a command replace them.
    """
    at = given.index("--") if "--" in given else len(given)
    own, data = given[:at], given[at:]
    in_recipe = any(word.endswith(".toml") for word in own[1:2] + data)
    for flag, value in way:
        option = FLAGS.get(flag)
        many = option is not None and option.value.many
        if many and in_recipe:
            return []
        if flag == TASK and own[0] == "run":
            own = _for_task(own, value)
        elif not value:
            own = [*own, flag]
        else:
            name = value.partition("=")[0] if option and isinstance(option.value, Pairs) else None
            own = own if many and name is None else _without(own, flag, name)
            own = [*own, flag, value]
    return [*own, *data]


def _for_task(own: list[str], task: str) -> list[str]:
    """The same for another task, without options that this one does not read."""
    words = [own[0], task, *own[2:]]
    for flag, option in FLAGS.items():
        if command_line.not_read(option.name, task):
            words = _without(words, flag)
    return words


def _without(own: list[str], flag: str, name: str | None = None) -> list[str]:
    """Arguments without an option and its value; of ``NAME=VALUE`` only where it has this name."""
    found: list[str] = []
    words = iter(own)
    for word in words:
        before, _, value = word.partition("=")
        whole = [word]
        if word == flag:
            value = next(words, "")
            whole.append(value)
        if before != flag or (name is not None and value.partition("=")[0] != name):
            found += whole
    return found


# Who shows the progress of a command: JSON lines, a terminal, text lines every ten seconds, or
# nobody.


@contextmanager
def beating(report: progress.Follower, every: float) -> Iterator[None]:
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


def _for(session: Session, quiet: bool) -> tuple[progress.Follower, float]:
    """Who shows it, and after how many seconds again."""
    if quiet:
        return progress.Follower(), 0
    if session.in_lines:
        return lines.Log(), lines.EVERY
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from pipeline.messages import screen

        return screen.Screen(), screen.EVERY
    return lines.Lines(), lines.EVERY


@contextmanager
def following(session: Session, quiet: bool) -> Iterator[progress.Follower]:
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
