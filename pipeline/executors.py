"""Engines by name: each provides ``pmap``, a function over items, any order, at least once.

One that has a parameter ``job`` is given what ``pipeline.job`` describes.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.amounts import Amount

MEMBERS = {"local": "pipeline.processes", "ray": "pipeline.ray"}


# What an engine may want to know of the work, beside the function and its items.
#
# An engine whose ``pmap`` has a parameter ``job`` is given it.


def _nobody(*_: object) -> None:
    return


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one phase.

    Attributes:
        phase: what the progress line calls it.
        alike: raises where a worker, whose name it is given, would make other bytes; it can be
            pickled.
        folders: that workers read and write.
        at_once: how many items at the same time; 0 leaves it to the engine.
        address: of the cluster; None where none was named.
        lost: is told of each worker that was lost, in a sentence.
        partly: is told how much of an item, by its number, is done while it is made; an engine that
            cannot know never calls it. Nothing of it is done where it has to be made again.
    """

    phase: str = ""
    alike: Callable[[str], None] = _nobody
    folders: tuple[Path, ...] = ()
    at_once: int = 0
    address: str | None = None
    lost: Callable[[str], None] = _nobody
    partly: Callable[[int, Amount], None] = _nobody


JOB = Job()  # of a phase that nobody asks about


def name_of(item: object) -> str:
    """An item, as a message names it."""
    return str(item).rstrip(",")


# The signals that end a command, which cleans up behind itself: Ctrl-C, a scheduler that wants the
# machine back, and a terminal or a connection that goes.


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
