"""Engines by name, what they may know of the work, and how much of it they tell is done.

One that has a parameter ``job`` is given a ``Job``; each tells how much is done as an ``Amount``.
"""

import ctypes
import gc
import operator
import os
import pickle
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stages.errors import PipelineError, SurroundingsError

MEMBERS = {"local": "pipeline.processes", "ray": "pipeline.ray"}


# How much was done: what workers count, and how they tell it while they are at a piece of work.
#
# A worker counts a batch, never a row, and what it tells is all of its piece so far: what is told
# late, twice or not at all makes no total wrong.


EVERY = 0.2  # seconds between two times that one process tells

_S = TypeVar("_S", bound="Sums")

# Of work that is done in parallel: what its calls share, what each gets, and what each gives.
Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def _sum(values: list[Any]) -> Any:
    """What there is of some values, added up; what a counter has counted as zero stays in it."""
    there = [value for value in values if value is not None]
    if there and isinstance(there[0], Counter):
        total: Counter[Any] = Counter()
        for one in there:
            total.update(one)
        return total
    return reduce(operator.add, there) if there else None


@dataclass(frozen=True, slots=True)
class Sums:
    """A record of counts; two of a kind are added field by field."""

    def __add__(self: _S, other: _S) -> _S:
        names = [one.name for one in fields(self)]
        return type(self)(*(_sum([getattr(self, n), getattr(other, n)]) for n in names))


@dataclass(frozen=True, slots=True)
class Amount(Sums):
    """What came of some work.

    Attributes:
        rows: that were read, or written.
        tokens: of the examples that were made or stored, without padding.
        refused: sequences of rows that were refused.
        size: of the share of the work that this was, in the unit in which its whole is given:
            bytes of input, or pieces.
    """

    rows: int = 0
    tokens: int = 0
    refused: int = 0
    size: int = 0

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(*map(operator.sub, astuple(self), astuple(other)))


NOTHING = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """All of them together."""
    return sum(amounts, NOTHING)


Listener = Callable[[Amount], None]
_listeners: list[Listener] = []  # one while a piece is made that somebody follows
_told = [0.0]  # when the last was told, by the monotonic clock


def tell(amount: Amount) -> None:
    """Say how far the piece is that this process makes; some are left out, to keep it cheap."""
    if _listeners and time.monotonic() - _told[0] >= EVERY:
        _told[0] = time.monotonic()
        _listeners[-1](amount)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Until the block ends, what is told goes there."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.pop()


# Numbers as people read them: with separators, or short where there is little room.


_STEPS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def short(number: float) -> str:
    """Three digits or so: ``11.3k``, ``2.4M``, ``870``."""
    for step, letter in _STEPS:
        if number >= 0.9995 * step:  # what would be rounded to 1000 of the smaller
            value = number / step
            return f"{value:.1f}{letter}" if value < 99.95 else f"{value:.0f}{letter}"
    return f"{number:.0f}"


def bytes_in_words(size: int) -> str:
    """``178.4 MB``; powers of ten, as disks are sold."""
    text = short(size)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} bytes"


def clock(seconds: float) -> str:
    """``0:07``, ``12:34``, ``1:02:03``."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def span(seconds: float) -> str:
    """``0.4 s``, ``27 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(share: float) -> str:
    """Rounded down: 100% is said of all only."""
    return f"{int(100 * share + 1e-9)}%"


# What an engine may want to know of the work, beside the function and its items.
#
# An engine whose ``pmap`` has a parameter ``job`` is given it.


def _nobody(*_: object) -> None:
    return


class Job(NamedTuple):
    """The work of one phase.

    Attributes:
        phase: what the progress line calls it.
        folders: that workers read and write.
        at_once: how many items at the same time; 0 leaves it to the engine.
        address: of the cluster; None where none was named.
        lost: is told of each worker that was lost, in a sentence.
        partly: is told how much of an item, by its number, is done while it is made; an engine that
            cannot know never calls it. Nothing of it is done where it has to be made again.
    """

    phase: str = ""
    folders: tuple[Path, ...] = ()
    at_once: int = 0
    address: str | None = None
    lost: Callable[[str], None] = _nobody
    partly: Callable[[int, Amount], None] = _nobody


JOB = Job()  # of a phase that nobody asks about


def name_of(item: object) -> str:
    """An item, as a message names it."""
    return str(item).rstrip(",")


# What workers have in common, wherever they are: how they answer, and what becomes of their items
# when they are lost.


ATTEMPTS = 3


def answered(function: Callable[[Any, Any], Any], shared: Any, item: Any) -> bytes:
    """What a worker sends back: a pickled pair, True with the result, or False with the exception
    to raise."""
    try:
        answer: tuple[bool, Any] = (True, function(shared, item))
    except Exception as error:  # carried to whoever asked, who raises it
        answer = (False, error)
    try:
        sent = pickle.dumps(answer)
        if not answer[0]:
            pickle.loads(sent)  # some exceptions are pickled and cannot be read again
    except Exception as error:
        sent = pickle.dumps((False, PipelineError(f"{type(answer[1]).__name__}: {error}")))
    return sent


class Waiting:
    """Items of a phase that no worker has yet, by number.

    Attributes:
        numbers: the next one first.
    """

    def __init__(self, items: Sequence[Any], job: Job) -> None:
        self.numbers = deque(range(len(items)))
        self._items, self._job = items, job
        self._lost: Counter[int] = Counter()

    def again(self, number: int, cause: str) -> None:
        """An item whose worker was lost waits again, first in line: so a bad one is named soon.

        Raises:
            SurroundingsError: it has lost too many.
        """
        self._lost[number] += 1
        item = self._items[number]
        if self._lost[number] >= ATTEMPTS:
            raise SurroundingsError(
                f"{item} killed its worker {ATTEMPTS} times ({cause}).",
                "Give the machines more memory, or make fewer at once with --workers.",
            )
        self._job.lost(f"The worker of {name_of(item)} was lost ({cause}); it is made again.")
        self._job.partly(number, NOTHING)
        self.numbers.appendleft(number)


# The signals that end a command, which cleans up behind itself: Ctrl-C, a scheduler that wants the
# machine back, and a terminal or a connection that goes.


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# Freed memory is kept inside the process, and the cycle collector out of the way.
#
# A build frees and takes arrays of megabytes thousands of times. By default the C library gives
# them back to the kernel each time, which then clears and maps fresh pages: on virtual machines
# that was up to a fifth of a build's time.

_M_TRIM_THRESHOLD = -1  # mallopt(3)
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 30
_COLLECT_EVERY = 400_000  # more than a start makes; rows are objects too, and have no cycles


def keep_freed() -> None:
    """Call this before pyarrow is imported. Without glibc only the collector is set."""
    gc.set_threshold(_COLLECT_EVERY, 50, 100)
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def begin_worker() -> None:
    """What a process that works for a build is told first: parallelism comes from processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    keep_freed()
