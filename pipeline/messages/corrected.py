"""The user's own command, corrected as a remedy says: one for each way that it offers.

A remedy is a sentence with options in it, each spelled as on a command line, and options that
belong together beside each other: ``Say which: --where ok=true, or --map a=b --map c=d.``
"""

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

from pipeline import tasks
from pipeline.messages import lines, progress
from pipeline.messages.session import Session
from pipeline.options import build_options, command_line
from pipeline.options.many_values import Pairs
from pipeline.options.values import OneOf, Switch
from pipeline.secrets import GAP, named, redacted

_TASK = "--task"
_FLAGS = {flag: one for one in build_options.OPTIONS.values() for flag in one.flags}
# What a sentence speaks of, but nobody should paste: what gives up a check, and places.
_NOT_PASTED = ("--max-reject", "--tolerance", "--drift", "--replace", "--model", "--output", "-o")
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s'"])+""")
_COMMANDS = ("run", "plan", "init", "stage", "parts", "shards", "commit", "build")

Way = tuple[tuple[str, str], ...]  # flags and values; no value is the empty text


def commands(arguments: Sequence[str], remedy: str) -> list[str]:
    """Commands that can be pasted, one for each way on; none where that cannot be said.

    Args:
        arguments: of the command that stopped, without the program's name.
    """
    given = list(arguments)
    if not given or given[0] not in _COMMANDS:
        return []
    found = []
    for way in _ways(remedy):
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
        option = _FLAGS.get(before)
        if word == "-" and (option is None or isinstance(option.value, Switch)):
            return True
    return False


def _ways(remedy: str) -> list[Way]:
    """What stands together in a sentence belongs together."""
    ways: list[list[tuple[str, str]]] = []
    end = -1
    for start, stop, flag, value in _options(remedy):
        if ways and remedy[end:start] == " ":
            ways[-1].append((flag, value))
        else:
            ways.append([(flag, value)])
        end = stop
    return [tuple(way) for way in ways]


def _options(remedy: str) -> Iterator[tuple[int, int, str, str]]:
    """Options that are complete: where they begin and end, the flag and the value."""
    for match in re.finditer(r"(?<=\bpipeline run )[a-z_]+|--[a-z][a-z-]*", remedy):
        name = match[0]
        if not name.startswith("-"):
            if name in tasks.names():
                yield match.start(), match.end(), _TASK, name
            continue
        option = None if name in _NOT_PASTED else _FLAGS.get(name)
        if option is not None and isinstance(option.value, Switch):
            yield match.start(), match.end(), name, ""
            continue
        word = _WORD.match(remedy, match.end() + 1) if remedy[match.end() :][:1] == " " else None
        if word is None or (option is None and name != _TASK):
            continue
        written = word[0].rstrip(".,;:?)") if word[0][-1:] not in "'\"" else word[0]
        value = "".join(shlex.split(written))
        if _is_value(name, value):
            yield match.start(), match.end() + 1 + len(written), name, value


def _is_value(flag: str, value: str) -> bool:
    """Whether a word after a flag is one of its values, not the next word of the sentence."""
    if flag == _TASK:
        return value in tasks.names()
    if flag == "--format":
        from stages import catalog

        return value.partition("/")[0] in catalog.names("stages.formats")
    kind = _FLAGS[flag].value
    if isinstance(kind, Pairs):
        return re.fullmatch(r"[^=\s]+=\S.*", value) is not None and value != "NAME=COLUMN"
    if isinstance(kind, OneOf):
        return value in kind.listed()
    return bool(value) and not value.isupper()


def _with(given: list[str], way: Way) -> list[str]:
    """The arguments with one way's options in place of what they say otherwise.

    Empty where a recipe has several values of the option: those of a command replace them.
    """
    at = given.index("--") if "--" in given else len(given)
    own, data = given[:at], given[at:]
    in_recipe = any(word.endswith(".toml") for word in own[1:2] + data)
    for flag, value in way:
        option = _FLAGS.get(flag)
        many = option is not None and option.value.many
        if many and in_recipe:
            return []
        if flag == _TASK and own[0] == "run":
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
    for flag, option in _FLAGS.items():
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
